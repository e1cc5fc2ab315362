"""``sfusion check``: say whether scenario files are valid.

Exit code 0 if all are valid, 2 otherwise, with a line FILE:LINE for each problem.

Example: sfusion check scenarios/ my-scenario.yaml
"""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from sfusion_tools.wording import counted

from ....fakes.described import described_fields
from ....fakes.faults import KINDS
from ...commandline.declaring import command, option
from ...commandline.json_answer import is_stdout, problem_as_dict, write_json
from ...commandline.options import Json, Paths
from .. import scenarios
from ..promises import PROMISES
from ..scenarios.model import Scenario


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
    files = [
        {"file": str(file), "cells": [cell.title for cell in cells]}
        for file, cells in found.items()
    ]
    document = {
        "valid": not problems,
        "files": files,
        "problems": [problem_as_dict(problem) for problem in problems],
    }
    write_json(json_file, document)
    if problems:
        raise scenarios.ScenarioError(problems)
    if not is_stdout(json_file):
        cells = sum(map(len, found.values()))
        typer.echo(f"{counted(len(found), 'file')} with {counted(cells, 'cell')}: all valid")


def json_schema() -> dict[str, Any]:
    """Return a schema that accepts whatever `sfusion check` accepts.

    Only `sfusion check` knows the finer rules.
    """
    schema = Scenario.model_json_schema(by_alias=True, schema_generator=_AsWritten)
    properties = schema["properties"]
    properties.pop("cell")
    properties["promises"] |= {"items": _named(PROMISES)}
    properties["extends"] = {
        "type": "string",
        "description": "a file to take all missing keys from",
    }
    properties["matrix"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": ["array", "object"]},
        "description": "dotted keys and their values: one cell for each combination",
    }

    definitions = schema["$defs"]
    what = definitions["Rule"]["properties"]["what"]
    what["anyOf"] = [*_named(KINDS)["anyOf"], {"type": ["array", "object"]}]
    for definition in definitions.values():
        if "type" not in definition:
            definition.pop("additionalProperties", None)  # loosened below
    # A file that extends another need not repeat its keys.
    schema["required"] = ["scenario"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "sfusion scenario",
    }


class _AsWritten(GenerateJsonSchema):
    """Loosens what a validator converts first.

    For example, a number may be written as `250ms`, and a list as its only item. Fields have their
    descriptions.
    """

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        found = super().model_schema(schema)
        properties = found.get("properties", {})
        for name, field in described_fields(schema["cls"]).items():
            written = properties.get(field.alias or name)
            if written is not None and field.description:
                written.setdefault("description", field.description)
        return found

    def function_before_schema(
        self, schema: core_schema.BeforeValidatorFunctionSchema
    ) -> JsonSchemaValue:
        inner = super().function_before_schema(schema)
        match inner.get("type"):
            case "number" | "integer":
                return {**inner, "type": [inner["type"], "string"]}
            case "array" if "items" in inner:
                return {"anyOf": [inner, inner["items"]]}
            case _:
                return {}


def _named(classes: Any) -> dict[str, Any]:
    """A name, or a mapping of one name to parameters."""
    described = {
        name: {"description": " ".join((cls.__doc__ or "").split())}
        for name, cls in classes.items()
    }
    mapping = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": described,
    }
    return {"anyOf": [{"enum": list(classes)}, mapping]}
