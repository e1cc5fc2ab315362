"""``sfusion list``: which scenarios there are."""

from __future__ import annotations

from typing import Annotated

import typer


def list_scenarios(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Files or folders; the bundled ones by default.")
    ] = None,
    names_only: Annotated[bool, typer.Option("--names", help="Only names, one per line.")] = False,
) -> None:
    """List scenarios with their worlds, cells and what they are about."""
    from sfusion.harness.commands._tell import fail
    from sfusion.harness.scenarios import ScenarioError, read_scenarios, scenario_files

    problems: list[str] = []
    try:
        files = scenario_files(paths or [])
    except ScenarioError as error:
        fail(str(error))
    for file in files:
        try:
            cells = read_scenarios(file)
        except ScenarioError as error:
            problems += error.problems
            continue
        first = cells[0]
        if names_only:
            typer.echo(first.scenario)
            continue
        size = f"{len(cells)} cells" if len(cells) > 1 else "1 cell"
        typer.echo(f"{first.scenario}  ({', '.join(first.worlds)}; {size})")
        typer.echo(f"    {' '.join(first.about.split())}")
        if first.incident:
            typer.echo(f"    seen: {first.incident}")
    if problems:
        fail("\n".join(problems))
