"""``sfusion learn``: a scenario that behaves like a log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def learn(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG...", help="Log files, or folders of them.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write the scenario (default, and `-`: stdout)."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the scenario (default: that of FILE, or of the main cause).")
    ] = None,
    calls: Annotated[
        int, typer.Option(min=1, max=200_000, help="Learn from the stretch of about this many calls with most trouble.")
    ] = 5000,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Run the scenario in virtual time, learn again and compare.")
    ] = True,
) -> None:
    """Learn a scenario from the logs of a production: what went wrong, and a file that does the same.

    Reads what `sfusion look` reads: event logs of the tool, journals, access logs. Finds how calls arrive, how
    long programs run, where the server has a limit or gets slower under load, what fails how often and when, and
    outages. The YAML says for each number where it comes from; play it with `sfusion run`, change one thing, and
    see what that would have done.

    Then the scenario is run in virtual time and compared with the log: outcomes within 5 points, p50, p95, rate
    and attempts within 25%, when things happened within 15 points, the same main cause.

    Exit code 0 if it behaves like the log, 1 if it does not or if there are too few calls to judge (the file is written
    all the same), 2 if the input is wrong.

    Example: sfusion learn /shared/logs -o friday.yaml && sfusion run friday.yaml --out runs
    """
    from sfusion.harness.studies.learn._learning import run_learn

    raise typer.Exit(run_learn(logs, out=out, force=force, name=name, most=calls, wants_check=check))
