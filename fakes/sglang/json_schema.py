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
_CACHED_SCHEMAS = 512
"""How many compiled schemas are kept. Chosen: more than the tools and answers of a rollout need."""
_BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
_TYPE_BY_KEYWORD = {
    "properties": "object",
    "required": "object",
    "items": "array",
    "minItems": "array",
    "minimum": "number",
}
"""The type of a schema that does not name one, by a keyword that it has."""


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
            "The policy's text does not match the JSON schema of the request, and the fake finds "
            f"no value that does ({problem}); let the policy answer with one."
        ) from error
    return json.dumps(least, ensure_ascii=False)


@lru_cache(maxsize=_CACHED_SCHEMAS)
def validator(schema: str) -> Draft202012Validator:
    """Return the validator of a schema; raises BadValue for what is not a schema.

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
    return _Search(schema).smallest(schema, frozenset())


class _Search:
    """Finds a small value for the parts of a schema.

    ``within`` are the references that led to a part: a part that leads to itself again has no
    smallest value.
    """

    def __init__(self, root: Schema) -> None:
        self._root = root
        """The whole schema, in which references are looked up."""

    def smallest(self, schema: Schema, within: frozenset[str]) -> Any:
        """Return a small value that a part of the schema allows."""
        if isinstance(schema, bool) or not schema:
            return ""
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return schema["enum"][0]
        if "$ref" in schema:
            return self._referred(schema["$ref"], within)
        if schema.get("allOf"):
            parts = [_followed(part, self._root) for part in schema["allOf"]]
            return self.smallest(_merged(parts, schema), within)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                options = [_merged([part], schema, without=key) for part in schema[key]]
                return self._first(options, within)
        return self._typed(schema, within)

    def _referred(self, reference: str, within: frozenset[str]) -> Any:
        """Return a value for what a reference leads to."""
        if reference in within:
            raise RecursionError(_ENDLESS)
        return self.smallest(_resolved(reference, self._root), within | {reference})

    def _first(self, options: list[Schema], within: frozenset[str]) -> Any:
        """Return the value of the first option that does not contain itself."""
        for option in options:
            with suppress(RecursionError):
                return self.smallest(option, within)
        raise RecursionError(_ENDLESS)

    def _typed(self, schema: Mapping[str, Any], within: frozenset[str]) -> Any:
        """Return the smallest value of the type of a schema."""
        kind = schema.get("type")
        if isinstance(kind, list):
            return self._first([{**schema, "type": allowed} for allowed in kind], within)

        kind = kind or _implied_type(schema)
        match kind:
            case "object":
                return self._object(schema, within)
            case "array":
                return self._array(schema, within)
            case "integer" | "number":
                return _number(schema, whole=kind == "integer")
            case "boolean":
                return False
            case "null":
                return None
        return "x" * schema.get("minLength", 0)

    def _object(self, schema: Mapping[str, Any], within: frozenset[str]) -> dict[str, Any]:
        """Return an object with the required properties only."""
        properties = schema.get("properties") or {}
        required = schema.get("required") or ()
        return {key: self.smallest(properties.get(key, {}), within) for key in required}

    def _array(self, schema: Mapping[str, Any], within: frozenset[str]) -> list[Any]:
        """Return the shortest array."""
        length = max(schema.get("minItems", 0), 0)
        first = list(schema.get("prefixItems") or ())
        others = [schema.get("items", {})] * max(length - len(first), 0)
        items = [*first, *others]
        return [self.smallest(item, within) for item in items[:length]]


def _implied_type(schema: Mapping[str, Any]) -> str:
    """Return the type that the keywords of a schema suggest."""
    for keyword, kind in _TYPE_BY_KEYWORD.items():
        if keyword in schema:
            return kind
    return "string"


def _number(schema: Mapping[str, Any], *, whole: bool) -> float:
    """Return 0, or a number at or near a bound."""
    from jsonschema import Draft202012Validator

    bounds = [schema[key] for key in _BOUNDS if key in schema]
    step = schema.get("multipleOf") or 1
    candidates = [0, *bounds]
    for bound in bounds:
        multiple = math.floor(bound / step) * step
        candidates += [multiple, multiple + step, multiple - step]
    candidates.append(sum(bounds) / 2)

    rules = {key: schema[key] for key in ("multipleOf", *_BOUNDS) if key in schema}
    checker = Draft202012Validator(rules)
    fitting = (number for number in candidates if checker.is_valid(number))
    found = next(fitting, 0)
    return int(found) if whole else found


def _followed(schema: Schema, root: Schema) -> Schema:
    """Return what a reference leads to, one step."""
    if isinstance(schema, Mapping) and "$ref" in schema:
        return _resolved(schema["$ref"], root)
    return schema


def _merged(parts: list[Schema], schema: Mapping[str, Any], without: str = "allOf") -> Schema:
    """Return a schema with its parts put into it, without the keyword that holds them.

    Properties and required keys are joined; of everything else, the last part wins.
    """
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != without}
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if key == "properties":
                merged[key] = {**merged.get(key, {}), **value}
            elif key == "required":
                merged[key] = [*merged.get(key, ()), *value]
            else:
                merged[key] = value
    return merged


def _resolved(reference: str, root: Schema) -> Schema:
    """Return the part of a schema that a reference such as ``#/$defs/name`` means."""
    found: Any = root if reference.startswith("#") else None
    for part in reference.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        found = found.get(key) if isinstance(found, Mapping) else None
    if found is None:
        raise NothingToSay(f"The JSON schema refers to {reference!r}, which it does not contain.")
    return found  # type: ignore[no-any-return] # a schema contains schemas
