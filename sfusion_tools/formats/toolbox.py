"""The tools that a text may call, with the declared types of their parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any


class Toolbox:
    """Looks up names and parameter types in a list of OpenAI tools.

    Without a list, every name is allowed.
    """

    def __init__(self, tools: Iterable[Any] | Toolbox | None = None) -> None:
        self.declared: bool
        self._parameters: dict[str, Mapping[str, Any]]
        if isinstance(tools, Toolbox):
            self.declared = tools.declared
            self._parameters = tools._parameters
        else:
            self.declared = tools is not None
            self._parameters = dict(map(_function, tools or ()))
        self.names = tuple(self._parameters)

    def knows(self, name: str) -> bool:
        """Return whether a tool of this name may be called."""
        return not self.declared or name in self._parameters

    def near(self, name: str) -> str | None:
        """Return the name that was probably meant."""
        lowered = {known.lower(): known for known in self._parameters}
        found = difflib.get_close_matches(name.lower(), lowered, n=1)
        return lowered[found[0]] if found else None

    def types(self, name: str, *path: str) -> frozenset[str]:
        """Return the declared JSON types of a parameter, or of what is inside it.

        The elements of a list are ``item``. Empty if there is no declaration.
        """
        root = self._parameters.get(name, {})
        schema: Any = root
        for key in path:
            schema = _inside(schema, root, key)
        return frozenset(_types(schema, root)) if isinstance(schema, Mapping) else frozenset()

    def takes(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """Return the tools that know all these arguments and require no others."""
        given = set(arguments)
        fitting: list[str] = []
        for name, parameters in self._parameters.items():
            required = set(parameters.get("required", ()))
            known = set(parameters.get("properties", ()))
            if required <= given <= known:
                fitting.append(name)
        return tuple(fitting)


def _function(tool: Any) -> tuple[str, Mapping[str, Any]]:
    """Return the name and the parameters of a tool, a mapping or a pydantic model."""
    data = tool.model_dump() if hasattr(tool, "model_dump") else tool
    function = data.get("function", data)
    return str(function["name"]), function.get("parameters") or {}


_SPELLINGS = {
    "string": ("str", "text"),
    "integer": ("int", "long"),
    "number": ("float", "double"),
    "boolean": ("bool",),
    "array": ("list", "tuple", "set"),
    "object": ("dict", "map"),
    "null": ("none",),
}
_NAMES: dict[str, str] = {}
for _name, _others in _SPELLINGS.items():
    _NAMES.update(dict.fromkeys((_name, *_others), _name))

_DEEPEST_SCHEMA = 8
"""How many references and alternatives are followed, one inside the other.

Chosen: schemas of tools have two or three, and one that refers to itself must end somewhere.
"""


def _types(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> set[str]:
    """Return the types that a schema allows."""
    declared = schema.get("type")
    if declared is not None:
        return _declared_types(declared if isinstance(declared, list) else [declared])
    if depth > _DEEPEST_SCHEMA:
        return set()
    found: set[str] = set()
    for part in _alternatives(schema, root):
        if isinstance(part, Mapping):
            found |= _types(part, root, depth + 1)
    return found or _types_of_values(schema)


def _declared_types(declared: list[Any]) -> set[str]:
    """Return JSON Schema's names of types; a name that is not usual for one is a string."""
    names = {str(name).lower() for name in declared}
    if "any" in names:
        return set()
    return {_NAMES.get(name, "string") for name in names}


def _types_of_values(schema: Mapping[str, Any]) -> set[str]:
    """Return "string" if a schema lists its values and all are texts."""
    constants = [schema["const"]] if "const" in schema else None
    values = schema.get("enum", constants)
    if isinstance(values, list) and all(isinstance(item, str) for item in values):
        return {"string"}
    return set()


def _alternatives(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas that a schema refers to or combines."""
    yield _resolved(schema.get("$ref"), root)
    for key in ("anyOf", "oneOf", "allOf"):
        yield from schema.get(key, ())


def _inside(schema: Any, root: Mapping[str, Any], key: str, depth: int = 0) -> Any:
    """Return the schema of a property, or of the elements of a list."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST_SCHEMA:
        return None
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and key in properties:
        return properties[key]
    if key == "item" and "items" in schema:
        return schema["items"]
    for part in _alternatives(schema, root):
        found = _inside(part, root, key, depth + 1)
        if found is not None:
            return found
    return None


def _resolved(reference: Any, root: Mapping[str, Any]) -> Any:
    """Return what a reference such as ``#/$defs/City`` refers to."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for step in reference[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(step)
    return found
