"""The JSON Schema of scenario files, for editors; made from the models and what people may write instead."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.faults import KINDS
from sfusion.harness.promises import PROMISES
from sfusion.harness.scenarios.model import Scenario


def json_schema() -> dict[str, Any]:
    """A schema that takes what `sfusion check` takes; the finer rules are told only by `sfusion check`."""
    schema = Scenario.model_json_schema(by_alias=True)
    properties = schema["properties"]
    properties.pop("cell")
    definitions = schema["$defs"]
    for name in ("load", "rollouts"):
        properties[name] = {**properties[name], "description": Scenario.model_fields[name].description}
    properties["promises"] = _promises()
    properties["extends"] = {"type": "string", "description": "a file whose keys are taken where this one has none"}
    properties["matrix"] = {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": ["array", "object"]},
        "description": "dotted keys and their values: one cell for each combination",
    }
    definitions["Distribution"] = _distribution()
    definitions["Rule"]["properties"]["what"] = _what()
    definitions["SandboxPart"]["properties"]["model"] = {
        "type": ["object", "string"],
        "description": definitions["SandboxPart"]["properties"]["model"].get("description", ""),
    }
    for part in definitions.values():
        for key, field in part.get("properties", {}).items():
            if key in ("seconds", "at", "think", "between", "horizon"):
                _loosen(field)
            if key in ("path", "method", "language", "call") and part is definitions["Rule"]:
                field.clear()
                field["type"] = ["string", "array", "null"]
    definitions["LoadPart"]["properties"]["program"].pop("items", None)
    definitions["LoadPart"]["properties"]["program"]["type"] = ["array", "object"]
    _loosen(properties["horizon"])
    # A file that extends another need not repeat what that one says.
    schema["required"] = ["scenario"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "sfusion scenario"}


def _loosen(field: dict[str, Any]) -> None:
    """A duration is also a text such as 250ms."""
    if "$ref" in field or "allOf" in field:
        return
    for key in ("type", "anyOf", "prefixItems", "minItems", "maxItems"):
        field.pop(key, None)
    field["type"] = ["number", "string", "array", "object", "null"]


def _promises() -> dict[str, Any]:
    one = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
        "properties": {name: {"description": " ".join((cls.__doc__ or "").split())} for name, cls in PROMISES.items()},
    }
    return {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [{"enum": list(PROMISES)}, one]},
        "description": Scenario.model_fields["promises"].description,
    }


def _distribution() -> dict[str, Any]:
    shapes = ("constant", "uniform", "normal", "lognormal", "exponential", "choice")
    return {
        "anyOf": [
            {"type": ["number", "string"]},
            {"type": "object", "minProperties": 1, "maxProperties": 1, "properties": {name: {} for name in shapes}},
        ],
        "description": "0.2, '200ms', {uniform: [a, b]}, {lognormal: [median, sigma]}, {exponential: mean}, ...",
    }


def _what() -> dict[str, Any]:
    kinds = {name: {"description": " ".join((cls.__doc__ or "").split())} for name, cls in KINDS.items()}
    return {"anyOf": [{"enum": list(KINDS)}, {"type": "object", "properties": kinds}, {"type": "array"}]}
