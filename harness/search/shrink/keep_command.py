"""``sfusion keep``: a broken run becomes a scenario that is run from now on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.search.shrink._broken_run import BrokenRun, OtherTools, Trust


def keep(
    run: BrokenRun,
    name: Annotated[
        str | None, typer.Option(help="Name of the scenario; by default made from run and promise.")
    ] = None,
    tools: OtherTools = None,
    trust: Trust = False,
    to: Annotated[Path, typer.Option(help="Folder to put it in.")] = Path("scenarios/found"),
) -> None:
    """Keep a broken run as a scenario, shrunk if `sfusion shrink` was used on it, with the promise that it breaks.

    Exit code 0 if the file was written, 2 if there is one of that name or the run is not trusted with what it names.
    """
    from sfusion.harness.search.shrink.recorded import keep as keep_run

    file = keep_run(run, to, name, tools=tools, trust=trust)
    more = f" --tools {tools}" if tools is not None else " --trust" if trust else ""
    typer.echo(f"{file}\nrun it: sfusion run {file}{more}")
