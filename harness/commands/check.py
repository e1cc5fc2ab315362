"""``sfusion check``: are scenario files valid?"""

from __future__ import annotations

import json
from typing import Annotated

import typer


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PATH]...", help="Files or folders; by default the bundled scenarios."),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of scenario files instead.")] = False,
) -> None:
    """Check scenario files. Exit code 0 if all are valid, 2 otherwise, with a line FILE:LINE for each problem."""
    from sfusion.harness.scenarios import ScenarioError, read_files, scenario_files
    from sfusion.harness.scenarios.schema import json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=2))
        return
    found, problems = read_files(scenario_files(paths or []))
    if problems:
        raise ScenarioError(problems)
    cells = sum(map(len, found.values()))
    files = "1 file" if len(found) == 1 else f"{len(found)} files"
    typer.echo(f"{files} with {cells} {'cell' if cells == 1 else 'cells'}: all valid")
