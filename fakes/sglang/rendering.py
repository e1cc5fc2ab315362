"""Writes the reply of a policy as text: its calls in a format, or as a constraint demands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion.fakes.errors import NothingToSay
from sfusion.fakes.sglang.json_schema import constrained, smallest
from sfusion.fakes.sglang.protocol import Reply, ToolCall
from sfusion_tools.formats import Format, RenderError


@dataclass(frozen=True, slots=True)
class Constraint:
    """What constrained decoding enforces: that a tool is called, which one, only one, and as plain JSON.

    JSON of a schema (a sampling parameter) begins behind ``free_until``, the end of the thinking.
    """

    must_call: bool = False
    tool: str | None = None
    at_most_one: bool = False
    as_array: bool = False
    free_until: str | None = None


def render_reply(
    reply: Reply,
    form: Format,
    tools: Sequence[Mapping[str, Any]],
    constraint: Constraint,
    json_schema: str | None = None,
) -> str:
    if json_schema is not None:
        # As in sglang, a schema for the answer rules out tool calls.
        # What was to be thought is thought, and closed, before the JSON begins.
        thought, closed, text = reply.text.partition(constraint.free_until or "</think>")
        thinking = thought if closed else ""
        answer = constrained((text if closed else reply.text).strip(), json_schema)
        return answer if constraint.free_until is None else f"{thinking}{constraint.free_until}{answer}"
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
    arguments = smallest({"type": "object", **(function.get("parameters") or {})})
    return ToolCall(str(function.get("name") or name or ""), arguments)
