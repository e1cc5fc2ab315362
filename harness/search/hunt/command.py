"""``sfusion hunt``: look for a case that breaks a promise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def hunt(
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Hunt for this long (default: 1 minute).")] = None,
    cases: Annotated[int | None, typer.Option(min=1, help="Hunt for this many cases instead.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides which cases are played.")] = 0,
    tools: Annotated[Path | None, typer.Option(help="Tool config (verl's YAML) to hunt instead of our own.")] = None,
    near: Annotated[
        list[str] | None,
        typer.Option(metavar="SCENARIO", help="Start from a file or bundled scenario. Repeat for several."),
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Keep what was learned in this folder, and continue the hunt that it holds.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 for one per CPU.")] = 0,
    on: Annotated[str, typer.Option(help="Where to play the cases: here, or ray (a Ray cluster).")] = "here",
    address: Annotated[str | None, typer.Option(help="With --on ray: HOST:PORT of the cluster.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write each finding as a run, for replay, shrink and keep, below this folder.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page: what was covered, what never happened, findings.")
    ] = None,
    stop: Annotated[bool, typer.Option("--stop", help="Stop after the batch of the first finding.")] = False,
    shrink: Annotated[bool, typer.Option(help="Shrink what is written with --out.")] = True,
    trust: Annotated[
        bool, typer.Option("--trust", help="With --near: run the code and the classes that these files name.")
    ] = False,
) -> None:
    """Look for a case that breaks a promise.

    Draws scenarios from a seed (cluster, load, programs, rollouts, faults in every phase, kills, pauses, lost
    messages, resizes, cancellations, schedules), plays them in virtual time and judges each by every promise that
    applies. A run that raises, hangs or logs an error counts as broken too. Each case leaves some features out; cases
    that showed new behaviour are varied further.

    The same seed plays the same cases, however many processes or nodes play them. Hunt your own tool with `--tools
    FILE`; look around a scenario with `--near NAME`.

    Exit code 0 if nothing was found, 1 if something was, 2 if the input is wrong, 3 if Ray is missing.
    """
    from sfusion.harness.search.hunt._hunting import HuntOptions, run_hunt

    options = HuntOptions(
        minutes=minutes,
        cases=cases,
        seed=seed,
        tools=tools,
        near=tuple(near or ()),
        corpus=corpus,
        jobs=jobs,
        on=on,
        address=address,
        out=out,
        html=html,
        stop=stop,
        shrink=shrink,
        trust=trust,
    )
    raise typer.Exit(run_hunt(options))
