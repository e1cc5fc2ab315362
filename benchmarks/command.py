"""``python -m benchmarks``: how fast it is, as ratios measured in one run, and how its cost
grows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.cli import Edge
from sfusion.harness.commandline.options import Json

app = typer.Typer(
    name="python -m benchmarks",
    cls=Edge,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    add_completion=False,
)

Only = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Measure only this one. Repeat for several."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Fewer and shorter rounds, to see that everything works.")
]


@app.callback()
def bench(
    context: typer.Context,
    only: Only = None,
    rounds: Annotated[int, typer.Option(min=1, max=99, help="Rounds of each benchmark.")] = 7,
    quick: Quick = False,
    json: Json = None,
) -> None:
    """Measure the tool, the fakes and the simulation against their baselines.

    The contestants of a benchmark take turns, and a ratio is the median over the rounds. Baselines
    are plain aiohttp under a semaphore (the floor), a literal implementation of verl's original
    design, verl 0.7.1 and pytest-httpserver; what is not installed is named and left out. Run it on
    a machine that does nothing else.

    Exit code 0 if every goal is met (always with --quick), 1 if one is missed, 2 if the input is
    wrong, 3 if nothing of what was chosen can be measured here.
    """
    if context.invoked_subcommand is not None:
        return
    from benchmarks._benching import run_benchmarks

    raise typer.Exit(run_benchmarks(only or [], rounds=rounds, quick=quick, json=json))


@app.command()
def growth(
    only: Only = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CURVE=N,N,...",
            help="Sizes to measure instead of the usual ones, e.g. calls=1000,1000000.",
        ),
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, max=99, help="Repetitions of each point.")] = 3,
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(help="Write one SVG plot for each curve to this folder.")
    ] = None,
    json: Json = None,
) -> None:
    """Measure how the cost of one unit grows with the number of them.

    Curves: callers, waiters, workers and nodes (simulated), real-nodes (Ray), calls, journal lines
    and the length of tool-call text. The exponent says how the total cost grows: 1 is linear, 2 is
    quadratic.
    """
    from benchmarks._benching import run_growth

    run_growth(
        only or [], sizes=sizes or [], repetitions=repetitions, quick=quick, out=out, json=json
    )
