"""``sfusion check``: are scenario files valid?"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile, is_stdout, problem_as_dict, write_json
from sfusion_tools.wording import counted


def check(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Files or folders; by default the bundled scenarios."),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of scenario files instead.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Check scenario files. Exit code 0 if all are valid, 2 otherwise, with a line FILE:LINE for each problem."""
    from sfusion.harness.lab.scenarios import ScenarioError, read_files, scenario_files
    from sfusion.harness.lab.scenarios.schema import json_schema

    if schema:
        typer.echo(json.dumps(json_schema(), indent=2))
        return
    found, problems = read_files(scenario_files(paths or []))
    if json_file is not None:
        files = [{"file": str(file), "cells": [cell.title for cell in cells]} for file, cells in found.items()]
        document = {"valid": not problems, "files": files, "problems": [problem_as_dict(one) for one in problems]}
        write_json(json_file, document)
    if problems:
        raise ScenarioError(problems)
    if not is_stdout(json_file):
        cells = sum(map(len, found.values()))
        typer.echo(f"{counted(len(found), 'file')} with {counted(cells, 'cell')}: all valid")
