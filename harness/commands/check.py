"""``sfusion check``: are scenario files valid?"""

from __future__ import annotations

import json
from typing import Annotated

import typer


def check(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Files or folders; the bundled ones by default.")
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of scenario files instead.")] = False,
) -> None:
    """Say whether scenario files are valid: exit code 0, or 2 with a line FILE:LINE for each problem."""
    from sfusion.harness.commands._tell import fail
    from sfusion.harness.scenarios import ScenarioError, read_scenarios, scenario_files
    from sfusion.harness.scenarios.schema import json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=2))
        return
    problems: list[str] = []
    cells = 0
    try:
        files = scenario_files(paths or [])
    except ScenarioError as error:
        fail(str(error))
    for file in files:
        try:
            cells += len(read_scenarios(file))
        except ScenarioError as error:
            problems += error.problems
    if problems:
        fail("\n".join(problems))
    typer.echo(f"{len(files)} file(s) with {cells} cell(s): all valid")
