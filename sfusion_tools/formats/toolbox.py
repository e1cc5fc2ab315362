"""The tools a text may call: their names and what their parameters are declared to be."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Toolbox"]


class Toolbox:
    """Looks names and parameter types up in a list of OpenAI tools; without tools every name is allowed."""

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
        """The names, in the order of the tool list."""
        return tuple(self._parameters)

    def knows(self, name: str) -> bool:
        """True when the call may be made."""
        return not self.declared or name in self._parameters

    def near(self, name: str) -> str | None:
        """The tool that was probably meant."""
        lowered = {known.lower(): known for known in self._parameters}
        found = difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.6)
        return lowered[found[0]] if found else None

    def types(self, name: str, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter is declared to have; empty when nothing is declared."""
        properties = self._parameters.get(name, {}).get("properties", {})
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return frozenset(_types(schema)) if isinstance(schema, Mapping) else frozenset()

    def takes(self, arguments: Iterable[str]) -> tuple[str, ...]:
        """The tools whose parameters these arguments can be: none is unknown, none that is required is missing."""
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
