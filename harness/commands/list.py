"""``sfusion list``: which scenarios there are."""

from __future__ import annotations

from typing import Annotated

import typer


def list_scenarios(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files or folders; by default the bundled scenarios."),
    ] = None,
    names_only: Annotated[bool, typer.Option("--names", help="Print only names, one per line.")] = False,
) -> None:
    """List scenarios with their worlds, their number of cells and what they are about."""
    from sfusion.harness.scenarios import ScenarioError, read_files, scenario_files

    found, problems = read_files(scenario_files(paths or []))
    for first, *others in found.values():
        if names_only:
            typer.echo(first.scenario)
            continue
        size = f"{len(others) + 1} cells" if others else "1 cell"
        typer.echo(f"{first.scenario}  ({', '.join(first.worlds)}; {size})")
        typer.echo(f"    {' '.join(first.about.split())}")
        if first.incident:
            typer.echo(f"    seen in {first.incident}")
    if problems:
        raise ScenarioError(problems)
