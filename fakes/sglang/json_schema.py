"""What constrained decoding makes of a text: JSON that a schema allows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..errors import BadValue, NothingToSay

if TYPE_CHECKING:  # few requests have a schema, and importing it takes as long as a short run
    from jsonschema import Draft202012Validator

Schema = Mapping[str, Any] | bool

_ENDLESS = "the schema contains itself"
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_BY_KEYWORD = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "minItems": "array",
    "minimum": "number",
}


def constrained(text: str, schema: str) -> str:
    """Return the text if the schema allows it, else the smallest value that it allows."""
    from jsonschema import ValidationError

    checker = validator(schema)
    with suppress(ValueError):
        if checker.is_valid(json.loads(text)):
            return text
    try:
        least = smallest(checker.schema)
        checker.validate(least)
    except (ValidationError, RecursionError) as error:
        problem = error.message if isinstance(error, ValidationError) else error
        raise NothingToSay(
            "The policy's text does not match the JSON schema of the request, and the "
            "fake finds no value that does "
            f"({problem}); let the policy answer with one."
        ) from error
    return json.dumps(least, ensure_ascii=False)


@lru_cache(maxsize=512)
def validator(schema: str) -> Draft202012Validator:
    """Return the validator of a schema; raises BadValue for what is no schema.

    Cached: the check takes milliseconds, and rollouts repeat the same schemas.
    """
    from jsonschema import Draft202012Validator, SchemaError

    try:
        read = json.loads(schema)
        Draft202012Validator.check_schema(read)
    except (ValueError, SchemaError) as error:
        problem = error.message if isinstance(error, SchemaError) else error
        raise BadValue(f"Failed to compile json_schema grammar: {problem}") from error
    return Draft202012Validator(read)


def smallest(schema: Schema) -> Any:
    """Return a small value that a schema allows, as far as that can be told without searching."""
    return _smallest(schema, schema, frozenset())


def _smallest(schema: Schema, root: Schema, within: frozenset[str]) -> Any:
    """``within`` are the references that led here: one that leads to itself has no smallest
    value."""
    if isinstance(schema, bool) or not schema:
        return ""
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    if "$ref" in schema:
        if schema["$ref"] in within:
            raise RecursionError(_ENDLESS)
        return _smallest(_resolved(schema["$ref"], root), root, within | {schema["$ref"]})
    if schema.get("allOf"):
        return _smallest(
            _merged([_followed(part, root) for part in schema["allOf"]], schema), root, within
        )
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return _first([_merged([part], schema, key) for part in schema[key]], root, within)
    kinds = schema.get("type")
    if isinstance(kinds, list):
        return _first([{**schema, "type": kind} for kind in kinds], root, within)
    kind = kinds or next((kind for key, kind in _BY_KEYWORD.items() if key in schema), "string")
    match kind:
        case "object":
            known = schema.get("properties") or {}
            return {
                key: _smallest(known.get(key, {}), root, within)
                for key in schema.get("required") or ()
            }
        case "array":
            first = list(schema.get("prefixItems") or ())
            least = max(schema.get("minItems", 0), 0)
            items = [*first, *[schema.get("items", {})] * max(least - len(first), 0)]
            return [_smallest(item, root, within) for item in items[:least]]
        case "integer" | "number":
            return _number(schema, whole=kind == "integer")
        case "boolean":
            return False
        case "null":
            return None
    return "x" * schema.get("minLength", 0)


def _first(options: list[Schema], root: Schema, within: frozenset[str]) -> Any:
    """Return the value of the first option that does not contain itself."""
    for option in options:
        with suppress(RecursionError):
            return _smallest(option, root, within)
    raise RecursionError(_ENDLESS)


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    """Return 0, or a number at or near a bound."""
    from jsonschema import Draft202012Validator

    bounds = [schema[key] for key in _BOUNDS if key in schema]
    step = schema.get("multipleOf") or 1
    near = [math.floor(bound / step) * step + more for bound in bounds for more in (0, step, -step)]
    checker = Draft202012Validator(
        {key: schema[key] for key in ("multipleOf", *_BOUNDS) if key in schema}
    )
    found = next((one for one in (0, *bounds, *near, sum(bounds) / 2) if checker.is_valid(one)), 0)
    return int(found) if whole else found


def _followed(schema: Schema, root: Schema) -> Schema:
    """Return what a reference leads to, one step."""
    return (
        _resolved(schema["$ref"], root)
        if isinstance(schema, Mapping) and "$ref" in schema
        else schema
    )


def _merged(parts: list[Schema], schema: Mapping[str, Any], without: str = "allOf") -> Schema:
    """Return one object schema of several, for what they say about properties; otherwise the
    last one wins."""
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != without}
    for part in parts:
        for key, value in part.items() if isinstance(part, Mapping) else ():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            else:
                merged[key] = value
    return merged


def _resolved(reference: str, root: Schema) -> Schema:
    found: Any = root if reference.startswith("#") else None
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    if found is None:
        raise NothingToSay(f"The JSON schema refers to {reference!r}, which it does not contain.")
    return found  # type: ignore[no-any-return] # a schema contains schemas
