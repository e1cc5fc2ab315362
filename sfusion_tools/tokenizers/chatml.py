"""The ChatML conversation layout with the tools section that Qwen-like models are trained on.

A conversation becomes a sequence of pieces, so that a tokenizer can tell the layout's own special tokens from the
same characters inside a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
END_OF_TEXT = "<|endoftext|>"

_TOOLS_HEAD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_TOOLS_TAIL = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)


class Piece(NamedTuple):
    """Some text, and whether special tokens in it count as such."""

    text: str
    is_mark: bool


def as_mapping(value: Mapping[str, Any] | BaseModel) -> Mapping[str, Any]:
    return value.model_dump() if isinstance(value, BaseModel) else value


def content_text(content: Any) -> str:
    """Return the text of a message's content: a string, None, or OpenAI's list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        return "".join(part if isinstance(part, str) else str(part.get("text", "")) for part in content)
    return str(content)


def tools_section(tools: Iterable[Mapping[str, Any] | BaseModel]) -> str:
    """Render the part of the system message that lists the functions."""
    lines = "".join("\n" + json.dumps(as_mapping(tool), ensure_ascii=False) for tool in tools)
    return _TOOLS_HEAD + lines + _TOOLS_TAIL


def _call_text(call: Mapping[str, Any]) -> str:
    function = call.get("function") or call
    arguments = function.get("arguments")
    # OpenAI's messages carry the arguments as JSON text, our own as an object.
    written = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    name = json.dumps(function.get("name", ""), ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {written}}}\n</tool_call>'


def _body(message: Mapping[str, Any]) -> str:
    parts = [content_text(message.get("content"))]
    parts += [_call_text(as_mapping(call)) for call in message.get("tool_calls") or ()]
    return "\n".join(part for part in parts if part)


def _turn(role: str, body: str) -> Iterator[Piece]:
    yield Piece(IM_START, True)
    yield Piece(f"{role}\n{body}", False)
    yield Piece(IM_END, True)
    yield Piece("\n", False)


def layout(
    messages: Sequence[Mapping[str, Any] | BaseModel],
    tools: Sequence[Mapping[str, Any] | BaseModel] | None = None,
    add_generation_prompt: bool = False,
) -> Iterator[Piece]:
    rest = [as_mapping(message) for message in messages]
    if tools:
        lead = ""
        if rest and rest[0].get("role") == "system":
            lead = content_text(rest.pop(0).get("content"))
        section = tools_section(tools)
        yield from _turn("system", f"{lead}\n\n{section}" if lead else section)
    for message in rest:
        yield from _turn(str(message.get("role", "user")), _body(message))
    if add_generation_prompt:
        yield Piece(IM_START, True)
        yield Piece("assistant\n", False)
