"""The tools that a text may call, with the declared types of their parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class Toolbox:
    """Looks up names and parameter types in a list of OpenAI tools; without tools, every name is
    allowed."""

    def __init__(self, tools: Iterable[Any] | Toolbox | None = None) -> None:
        self.declared: bool
        self._parameters: dict[str, Mapping[str, Any]]
        if isinstance(tools, Toolbox):
            self.declared, self._parameters = tools.declared, tools._parameters
        else:
            self.declared, self._parameters = tools is not None, dict(map(_function, tools or ()))
        self.names = tuple(self._parameters)

    def knows(self, name: str) -> bool:
        """Return whether a tool of this name may be called."""
        return not self.declared or name in self._parameters

    def near(self, name: str) -> str | None:
        """Return the name that was probably meant."""
        lowered = {known.lower(): known for known in self._parameters}
        found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
        return lowered[found[0]] if found else None

    def types(self, name: str, *path: str) -> frozenset[str]:
        """Return the declared JSON types of a parameter, or of what is inside it; empty if there is
        no declaration.

        The elements of a list are ``item``.
        """
        root = self._parameters.get(name, {})
        schema: Any = root
        for key in path:
            schema = _inside(schema, root, key)
        return frozenset(_types(schema, root)) if isinstance(schema, Mapping) else frozenset()

    def takes(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """Return the tools that accept these arguments: all are known, and no required one is
        missing."""
        given = set(arguments)
        return tuple(
            name
            for name, parameters in self._parameters.items()
            if set(parameters.get("required", ())) <= given <= set(parameters.get("properties", ()))
        )


def _function(tool: Any) -> tuple[str, Mapping[str, Any]]:
    data = tool.model_dump() if hasattr(tool, "model_dump") else tool
    function = data.get("function", data)
    return str(function["name"]), function.get("parameters") or {}


_SPELLINGS = {
    "string": "str text",
    "integer": "int long",
    "number": "float double",
    "boolean": "bool",
    "array": "list tuple set",
    "object": "dict map",
    "null": "none",
}
_NAMES = {spelt: name for name, others in _SPELLINGS.items() for spelt in (name, *others.split())}


def _types(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the types that a schema allows; a name that is none of JSON Schema's nor usual for one
    is a string."""
    declared = schema.get("type")
    if declared is not None:
        names = {
            str(name).lower() for name in (declared if isinstance(declared, list) else [declared])
        }
        return set() if "any" in names else {_NAMES.get(name, "string") for name in names}
    if depth > 8:
        return set()
    found: set[str] = set()
    target = _resolved(schema.get("$ref"), root)
    for part in (
        target,
        *schema.get("anyOf", ()),
        *schema.get("oneOf", ()),
        *schema.get("allOf", ()),
    ):
        if isinstance(part, Mapping):
            found |= _types(part, root, depth + 1)
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not found and isinstance(values, list) and all(isinstance(item, str) for item in values):
        return {"string"}
    return found


def _inside(schema: Any, root: Mapping[str, Any], key: str, depth: int = 0) -> Any:
    """Return the schema of a property, or of the elements of a list."""
    if not isinstance(schema, Mapping) or depth > 8:
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    if key == "item" and "items" in schema:
        return schema["items"]
    parts = (
        _resolved(schema.get("$ref"), root),
        *schema.get("anyOf", ()),
        *schema.get("oneOf", ()),
    )
    found = (_inside(part, root, key, depth + 1) for part in (*parts, *schema.get("allOf", ())))
    return next((one for one in found if one is not None), None)


def _resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return what a reference such as ``#/$defs/City`` refers to."""
    found: Any = root if isinstance(reference, str) and reference.startswith("#/") else None
    for step in str(reference)[2:].split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found
