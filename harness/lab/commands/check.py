"""``sfusion check``: say whether scenario files are valid.

Exit code 0 if all are valid, 2 otherwise, with a line FILE:LINE for each problem.

Example: sfusion check scenarios/ my-scenario.yaml
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import is_stdout, problem_as_dict, write_json
from sfusion.harness.commandline.options import Json, Paths
from sfusion.harness.lab import scenarios
from sfusion.harness.lab.scenarios.schema import json_schema
from sfusion_tools.wording import counted


@command
def check(
    paths: Paths = None,
    schema: Annotated[bool, option("Print the JSON Schema of scenario files instead.")] = False,
    json_file: Json = None,
) -> None:
    if schema:
        typer.echo(json.dumps(json_schema(), indent=2))
        return
    found, problems = scenarios.read_files(scenarios.scenario_files(paths or []))
    files = [{"file": str(file), "cells": [cell.title for cell in cells]} for file, cells in found.items()]
    document = {"valid": not problems, "files": files, "problems": [problem_as_dict(one) for one in problems]}
    write_json(json_file, document)
    if problems:
        raise scenarios.ScenarioError(problems)
    if not is_stdout(json_file):
        cells = sum(map(len, found.values()))
        typer.echo(f"{counted(len(found), 'file')} with {counted(cells, 'cell')}: all valid")
