"""Writes the reply of a policy as text, and reads a ChatML prompt back.

What is read back is the conversation from which the prompt was rendered.
"""

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
    """What constrained decoding enforces: that a tool is called, which, how many and how.

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
    """Return the text of a reply, with its calls in a format, as far as the constraint allows."""
    if json_schema is not None:
        # As in sglang, a schema for the answer rules out tool calls.
        return _schema_answer(reply.text, json_schema, constraint.free_until)

    calls = _constrained(reply.calls, tools, constraint)
    if not calls:
        return reply.text
    if constraint.as_array:
        array = [{"name": call.name, "parameters": dict(call.arguments)} for call in calls]
        return json.dumps(array, ensure_ascii=False)

    written = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    try:
        # The format adds a newline between text and calls.
        content = reply.text.removesuffix("\n")
        return form.render(written, content=content, tools=list(tools) or None)
    except RenderError as error:
        raise NothingToSay(
            f"The calls of the policy cannot be written in the format {form.name}: {error}"
        ) from error


def _schema_answer(text: str, json_schema: str, free_until: str | None) -> str:
    """Return the answer that a schema allows.

    With ``free_until``, the thinking stays, and it is closed before the JSON begins.
    """
    thought, closed, rest = text.partition(free_until or "</think>")
    answer = constrained((rest if closed else text).strip(), json_schema)
    if free_until is None:
        return answer
    return f"{thought if closed else ''}{free_until}{answer}"


def _constrained(
    calls: Sequence[ToolCall], tools: Sequence[Mapping[str, Any]], constraint: Constraint
) -> Sequence[ToolCall]:
    """Return the calls that a constraint allows, or a call that it forces."""
    if constraint.tool is not None:
        calls = [call for call in calls if call.name == constraint.tool]
    if constraint.must_call and not calls:
        calls = [_forced_call(tools, constraint.tool)]
    return calls[:1] if constraint.at_most_one else calls


def _forced_call(tools: Sequence[Mapping[str, Any]], name: str | None) -> ToolCall:
    """Return a forced call with the smallest arguments that the schema allows."""
    function = _function_called(name, tools)
    parameters = function.get("parameters") or {}
    arguments = smallest({"type": "object", **parameters})
    return ToolCall(str(function.get("name") or name or ""), arguments)


def _function_called(name: str | None, tools: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the function of this name, or the first; nothing if there is none."""
    for tool in tools:
        function: Mapping[str, Any] = tool.get("function") or tool
        if name is None or function.get("name") == name:
            return function
    return {}


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
    """Return the messages of a prompt by its ids and text.

    A marker that is plain text inside a message does not begin a turn.
    """
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
                    tool = json.loads(line)
                    if isinstance(tool, dict):
                        tools.append(tool)
    return tuple(tools)


def _messages(turns: Sequence[str]) -> tuple[ChatMessage, ...]:
    """Return the messages of some turns, each of which begins with its role."""
    messages: list[ChatMessage] = []
    for position, turn in enumerate(turns):
        role, _, body = turn.partition("\n")
        closed = body.rstrip("\n").endswith(IM_END)
        if closed:
            body = body.rstrip("\n").removesuffix(IM_END)

        is_last = position == len(turns) - 1
        is_begun_answer = is_last and role == "assistant" and not closed
        if is_begun_answer and not _NO_THOUGHT.sub("", body):
            break  # the generation prompt, still empty

        responses = _TOOL_RESPONSE.findall(body) if role in ("user", "tool") else []
        if responses and not _TOOL_RESPONSE.sub("", body).strip():
            # Qwen's own template shows each tool result as a user turn, the template of Hermes
            # shows all of them as one turn.
            messages += [{"role": "tool", "content": response} for response in responses]
        else:
            messages.append({"role": role, "content": body})
    return tuple(messages)
