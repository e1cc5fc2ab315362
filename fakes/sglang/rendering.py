"""Writes the reply of a policy as text, and reads a ChatML prompt back into the conversation it was
rendered from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sfusion_tools.formats import Format, RenderError
from sfusion_tools.tokenizers import IM_END, IM_START, Tokenizer

from ..errors import NothingToSay
from .json_schema import constrained, smallest
from .protocol import Reply, ToolCall


@dataclass(frozen=True, slots=True)
class Constraint:
    """What constrained decoding enforces: that a tool is called, which one, only one, and as plain
    JSON.

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
        return (
            answer
            if constraint.free_until is None
            else f"{thinking}{constraint.free_until}{answer}"
        )
    calls = _constrained(reply.calls, tools, constraint)
    if not calls:
        return reply.text
    if constraint.as_array:
        return json.dumps(
            [{"name": c.name, "parameters": dict(c.arguments)} for c in calls], ensure_ascii=False
        )
    written = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    try:
        # The format adds a newline between text and calls.
        return form.render(
            written, content=reply.text.removesuffix("\n"), tools=list(tools) or None
        )
    except RenderError as error:
        raise NothingToSay(
            f"The calls of the policy cannot be written in the format {form.name}: {error}"
        ) from error


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


_TOOLS = re.compile(r"<tools>\n?(.*?)\n?</tools>", re.DOTALL)
_TOOL_RESPONSE = re.compile(r"\s*<tool_response>\n?(.*?)\n?</tool_response>\s*", re.DOTALL)
_NO_THOUGHT = re.compile(r"\A<think>\s*(?:</think>\s*)?\Z")
"""With thinking switched on or off, some templates begin the turn."""

ChatMessage = dict[str, Any]


def read_prompt(prompt: str) -> tuple[ChatMessage, ...]:
    """Return the messages of a ChatML text; any other text is one user message."""
    if IM_START not in prompt:
        return ({"role": "user", "content": prompt},)
    return _messages(prompt.split(IM_START)[1:])


def read_ids(ids: Sequence[int], prompt: str, tokenizer: Tokenizer) -> tuple[ChatMessage, ...]:
    """Return the messages of a prompt by its ids and text; markers that are plain text in one do
    not begin a turn."""
    marks = tokenizer.encode(IM_START)
    if len(marks) != 1 or ids.count(marks[0]) in (0, prompt.count(IM_START)):
        return read_prompt(prompt)
    turns: list[list[int]] = [[]]
    for number in ids:
        if number == marks[0]:
            turns.append([])
        else:
            turns[-1].append(number)
    return _messages([tokenizer.decode(turn) for turn in turns[1:]])


def read_tools(messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Return the tools that the system message describes."""
    tools: list[Mapping[str, Any]] = []
    for message in messages:
        if message.get("role") != "system" or not isinstance(message.get("content"), str):
            continue
        for section in _TOOLS.findall(message["content"]):
            for line in section.splitlines():
                with suppress(ValueError):
                    if isinstance(tool := json.loads(line), dict):
                        tools.append(tool)
    return tuple(tools)


def _messages(turns: Sequence[str]) -> tuple[ChatMessage, ...]:
    messages: list[ChatMessage] = []
    for position, turn in enumerate(turns):
        role, _, body = turn.partition("\n")
        closed = body.rstrip("\n").endswith(IM_END)
        body = body.rstrip("\n").removesuffix(IM_END) if closed else body
        if (
            position == len(turns) - 1
            and role == "assistant"
            and not closed
            and not _NO_THOUGHT.sub("", body)
        ):
            break  # the generation prompt, still empty
        responses = _TOOL_RESPONSE.findall(body) if role in ("user", "tool") else []
        if responses and not _TOOL_RESPONSE.sub("", body).strip():
            # Qwen's own template shows tool results as a user turn, that of Hermes as one turn for
            # all of them.
            messages += [{"role": "tool", "content": response} for response in responses]
        else:
            messages.append({"role": role, "content": body})
    return tuple(messages)
