"""``sfusion sweep``: which settings are best, measured over a grid in world sim."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile


def sweep(
    scenario: Annotated[str, typer.Argument(metavar="SCENARIO", help="A file, or the name of a bundled scenario.")],
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=VALUES",
            help="A value of the scenario and what to try: 4..64 (doubling, with the values halfway), 4..64/4 (steps), "
            "4..64*9 (9 values), 32,64,128. Repeat for a grid.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds per setting.")] = 10,
    model: Annotated[
        Path | None,
        typer.Option(help="Server model to use instead of the scenario's, as `sfusion doctor --model-out` writes it."),
    ] = None,
    keyword: Annotated[str, typer.Option("-k", help="Cell of the scenario's matrix, by name.")] = "",
    jobs: Annotated[int, typer.Option(min=0, help="Number of processes; 0 for one per CPU.")] = 0,
    on: Annotated[str, typer.Option(help="Where to play: here, or ray (a Ray cluster).")] = "here",
    address: Annotated[str | None, typer.Option(help="With --on ray: HOST:PORT of the cluster.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write sweep.html, sweep.svg and sweep.json to this folder.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page with plots and table.")] = None,
    svg: Annotated[
        Path | None, typer.Option(help="Write the plots as one SVG file, or one file each if this is a folder.")
    ] = None,
    json_file: JsonFile = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Let the file run what it names: code and tool classes.")
    ] = False,
) -> None:
    """Try a grid of settings in world sim and recommend one.

    Plays the scenario with every combination of the values, each with several seeds, and reports throughput, the time
    of a call (p50, p95, p99), refused and wasted attempts and the time of the whole batch. The first varied value
    below `tools` is the one to recommend; the others are conditions. The recommendation is the smallest value within
    2% of the best throughput (5% if the seeds overlap) that breaks no promise.

    Exit code 0 if a value is recommended, 1 if none can be, 2 if the input is wrong, 3 if Ray is missing.
    """
    from sfusion.harness.studies.sweep._sweeping import SweepOptions, run_sweep

    options = SweepOptions(
        scenario=scenario,
        vary=tuple(vary or ()),
        seeds=seeds,
        model=model,
        keyword=keyword,
        jobs=jobs,
        on=on,
        address=address,
        out=out,
        html=html,
        svg=svg,
        json=json_file,
        trust=trust,
    )
    raise typer.Exit(run_sweep(options))
