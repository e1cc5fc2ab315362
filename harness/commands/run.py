"""``sfusion run``: run scenarios and say which promises held."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def run(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files, folders or names of bundled scenarios; all bundled by default."
        ),
    ] = None,
    world: Annotated[str, typer.Option(help="Where to run: sim (virtual time) or ray (a real cluster).")] = "sim",
    keyword: Annotated[str, typer.Option("-k", help="Only those with this in their name, as in pytest's -k.")] = "",
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed than the files'.")] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes to run in; 0: one per processor.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for journals and verdicts, one folder per scenario.")] = None,
    twice: Annotated[bool, typer.Option("--twice", help="Run everything twice and compare the journals.")] = False,
    tools: Annotated[Path | None, typer.Option(help="Tool config (verl's YAML) to use instead of the files'.")] = None,
) -> None:
    """Run scenarios and say which promises held. Exit code 0: all held, 1: broken or unknown, 2: bad input."""
    from harness.commands._running import run_command

    raise typer.Exit(
        run_command(paths or [], world=world, keyword=keyword, seed=seed, jobs=jobs, out=out, twice=twice, tools=tools)
    )
