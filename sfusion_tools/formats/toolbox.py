"""The tools that a text may call, with the declared types of their parameters."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any


class Toolbox:
    """Looks up names and parameter types in a list of OpenAI tools; without tools, every name is allowed."""

    def __init__(self, tools: Iterable[Any] | Toolbox | None = None) -> None:
        self.declared = tools is not None
        self._parameters: dict[str, Mapping[str, Any]] = {}
        if isinstance(tools, Toolbox):
            self.declared = tools.declared
            self._parameters = tools._parameters
        else:
            for tool in tools or ():
                name, parameters = _function(tool)
                self._parameters[name] = parameters

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._parameters)

    def knows(self, name: str) -> bool:
        """Return whether a tool of this name may be called."""
        return not self.declared or name in self._parameters

    def near(self, name: str) -> str | None:
        """Return the name that was probably meant."""
        lowered = {known.lower(): known for known in self._parameters}
        found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
        return lowered[found[0]] if found else None

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """Return the declared JSON types of a parameter; empty if there is no declaration."""
        properties = self._parameters.get(name, {}).get("properties", {})
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return frozenset(_types(schema)) if isinstance(schema, Mapping) else frozenset()

    def takes(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """Return the tools that accept these arguments: all are known, and no required one is missing."""
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


def _types(schema: Mapping[str, Any]) -> set[str]:
    declared = schema.get("type")
    if isinstance(declared, str):
        return {declared}
    if isinstance(declared, list):
        return {str(item) for item in declared}
    found: set[str] = set()
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ())):
        if isinstance(part, Mapping):
            found |= _types(part)
    if not found and isinstance(schema.get("enum"), list) and all(isinstance(item, str) for item in schema["enum"]):
        return {"string"}
    return found
