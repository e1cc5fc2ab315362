"""Writes the reply of a policy as text: its calls in a format, or as a constraint demands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion.fakes.errors import NothingToSay
from sfusion.fakes.sglang.protocol import Reply, ToolCall
from sfusion_tools.formats import Format, RenderError


@dataclass(frozen=True, slots=True)
class Constraint:
    """What constrained decoding enforces: that a tool is called, which one, only one, and as plain JSON."""

    must_call: bool = False
    tool: str | None = None
    at_most_one: bool = False
    as_array: bool = False


def render_reply(reply: Reply, form: Format, tools: Sequence[Mapping[str, Any]], constraint: Constraint) -> str:
    calls = _constrained(reply.calls, tools, constraint)
    if not calls:
        return reply.text
    if constraint.as_array:
        return json.dumps([{"name": c.name, "parameters": dict(c.arguments)} for c in calls], ensure_ascii=False)
    written = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    try:
        # The format adds a newline between text and calls.
        return form.render(written, content=reply.text.removesuffix("\n"), tools=list(tools) or None)
    except RenderError as error:
        raise NothingToSay(f"The calls of the policy cannot be written in the format {form.name}: {error}") from error


def _constrained(
    calls: Sequence[ToolCall], tools: Sequence[Mapping[str, Any]], constraint: Constraint
) -> Sequence[ToolCall]:
    if constraint.tool is not None:
        calls = [call for call in calls if call.name == constraint.tool]
    if constraint.must_call and not calls:
        calls = [_forced_call(tools, constraint.tool)]
    return calls[:1] if constraint.at_most_one else calls


def _forced_call(tools: Sequence[Mapping[str, Any]], name: str | None) -> ToolCall:
    """Return a forced call with the smallest arguments that the schema allows."""
    functions = [tool.get("function") or tool for tool in tools]
    function = next((one for one in functions if name in (None, one.get("name"))), {})
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    arguments = {key: _smallest(properties.get(key) or {}) for key in schema.get("required") or ()}
    return ToolCall(str(function.get("name") or name or ""), arguments)


def _smallest(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    least: dict[str, Any] = {"integer": 0, "number": 0, "boolean": False, "array": [], "object": {}, "null": None}
    kind = schema.get("type")
    return least.get(kind[0] if isinstance(kind, list) and kind else str(kind), "")
