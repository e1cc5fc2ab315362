"""Splits the text of a sample into turns, and each turn into text, thinking and tool calls."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

from sfusion_tools.bounded_input import parse_json

PartKind = Literal["text", "think", "call"]

_ROLES = "system|user|assistant|tool|developer"
_WITH_TOKENS = re.compile(rf"<\|im_start\|>({_ROLES})\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
# Decoding without special tokens leaves only the name of the role, alone on its line.
_WITHOUT_TOKENS = re.compile(rf"^({_ROLES})$\n?", re.MULTILINE)
_PARTS = re.compile(
    r"(?P<think><think>.*?(?:</think>|(?=<tool_call>)|\Z))"
    r"|(?P<call><tool_call>.*?(?:</tool_call>|\Z)"
    r"|<\|tool_calls_section_begin\|>.*?(?:<\|tool_calls_section_end\|>|\Z)"
    r"|<｜tool▁calls▁begin｜>.*?(?:<｜tool▁calls▁end｜>|\Z)"
    r"|\[TOOL_CALLS\].*\Z|<\|python_tag\|>.*\Z)",
    re.DOTALL,
)
_NAME = re.compile(r'"name"\s*:\s*"([^"]+)"|<function=([\w.-]+)|functions\.([\w.-]+)')


@dataclass(frozen=True)
class TurnPart:
    kind: PartKind
    text: str


@dataclass(frozen=True)
class TurnView:
    role: str
    parts: tuple[TurnPart, ...]


@dataclass(frozen=True)
class CallView:
    """A tool call for display; line breaks in its arguments are real ones."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    """Empty if the call is malformed."""


def split_turns(text: str, first_role: str = "assistant") -> list[TurnView]:
    """Split a text into turns; what precedes the first role belongs to ``first_role``."""
    if "<|im_start|>" in text:
        head = text[: text.index("<|im_start|>")].removesuffix("<|im_end|>\n")
        found = [(match[1], match[2]) for match in _WITH_TOKENS.finditer(text)]
        return [_turn(role, body) for role, body in ([(first_role, head)] if head.strip() else []) + found]
    split = _WITHOUT_TOKENS.split(text)
    turns = [(first_role, split[0])] if split[0].strip() else []
    turns += list(zip(split[1::2], split[2::2], strict=True))
    return [_turn(role, body) for role, body in turns]


def _turn(role: str, body: str) -> TurnView:
    body = body.strip("\n")
    if role != "assistant":
        return TurnView(role, (TurnPart("text", body),) if body else ())
    parts: list[TurnPart] = []
    at = 0
    for match in _PARTS.finditer(body):
        _add(parts, "text", body[at : match.start()])
        _add(parts, "think" if match["think"] else "call", match[0])
        at = match.end()
    _add(parts, "text", body[at:])
    return TurnView(role, tuple(parts))


def _add(parts: list[TurnPart], kind: PartKind, text: str) -> None:
    text = text.strip("\n")
    if text.strip():
        parts.append(TurnPart(kind, text))


def read_call(text: str) -> CallView:
    """Read the name and arguments of a call, as far as they are valid."""
    named = _NAME.search(text)
    name = next((group for group in named.groups() if group), "?") if named else "?"
    start, end = text.find("{"), text.rfind("}")
    try:
        record = parse_json(text[start : end + 1], "call")
    except ValueError:
        return CallView(name, ())
    arguments = record.get("arguments", record.get("parameters")) if isinstance(record, dict) else None
    if not isinstance(arguments, dict):
        return CallView(name, ())
    return CallView(str(record.get("name", name)), tuple((key, _shown(arguments[key])) for key in arguments))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
