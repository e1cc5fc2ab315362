"""``sfusion shrink``: the smallest scenario that breaks the same promise in the same way."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.search.shrink._broken_run import BrokenRun, OtherTools, Trust


def shrink(
    run: BrokenRun,
    promise: Annotated[str | None, typer.Option(help="Which broken promise; by default the first.")] = None,
    tools: OtherTools = None,
    trust: Trust = False,
    seconds: Annotated[float, typer.Option(min=0, help="Time for the search.")] = 60.0,
    cases: Annotated[int, typer.Option(min=1, help="Maximum number of runs.")] = 5000,
    to: Annotated[Path | None, typer.Option(help="File to write; by default RUN/shrunk.yaml.")] = None,
) -> None:
    """Reduce a broken run to the smallest scenario and schedule that break the same promise in the same way.

    Calls, workers, faults, events, settings and the schedule are reduced for as long as the promise breaks for the same
    reason and a right tool keeps it. The result is a scenario file with a comment of what happens.

    Exit code 0 if the file was written, 2 if the run breaks no promise now or is not trusted with what it names.
    """
    from sfusion.harness.search.shrink._shrinking import run_shrink

    run_shrink(run, promise=promise, tools=tools, trust=trust, seconds=seconds, cases=cases, to=to)
