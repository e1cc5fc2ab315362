"""Takes the text of a sample apart: whose turn it is, what is thought, said and called."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["text", "think", "call"]

_ROLES = "system|user|assistant|tool|developer"
_MARKED = re.compile(rf"<\|im_start\|>({_ROLES})\n(.*?)(?:<\|im_end\|>\n?|\Z)", re.DOTALL)
# Decoded without special tokens, a role's name is all that is left of the mark: it stands alone on its line.
_BARE = re.compile(rf"^({_ROLES})$\n?", re.MULTILINE)
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
class Part:
    """A piece of a turn."""

    kind: Kind
    text: str


@dataclass(frozen=True)
class Turn:
    """What one side says."""

    role: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class CallView:
    """A tool call made readable: its name, and its arguments with real line ends."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    """Empty when the call could not be read; then only the raw text tells."""


def split_turns(text: str, first_role: str = "assistant") -> list[Turn]:
    """The turns of a text; what stands before the first role belongs to ``first_role``."""
    if "<|im_start|>" in text:
        head = text[: text.index("<|im_start|>")].removesuffix("<|im_end|>\n")
        found = [(match[1], match[2]) for match in _MARKED.finditer(text)]
        return [_turn(role, body) for role, body in ([(first_role, head)] if head.strip() else []) + found]
    pieces = _BARE.split(text)
    turns = [(first_role, pieces[0])] if pieces[0].strip() else []
    turns += list(zip(pieces[1::2], pieces[2::2], strict=True))
    return [_turn(role, body) for role, body in turns]


def _turn(role: str, body: str) -> Turn:
    body = body.strip("\n")
    if role != "assistant":
        return Turn(role, (Part("text", body),) if body else ())
    parts: list[Part] = []
    at = 0
    for match in _PARTS.finditer(body):
        _add(parts, "text", body[at : match.start()])
        _add(parts, "think" if match["think"] else "call", match[0])
        at = match.end()
    _add(parts, "text", body[at:])
    return Turn(role, tuple(parts))


def _add(parts: list[Part], kind: Kind, text: str) -> None:
    text = text.strip("\n")
    if text.strip():
        parts.append(Part(kind, text))


def read_call(text: str) -> CallView:
    """A call's name and arguments, as far as they can be read."""
    named = _NAME.search(text)
    name = next((group for group in named.groups() if group), "?") if named else "?"
    start, end = text.find("{"), text.rfind("}")
    try:
        record = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return CallView(name, ())
    arguments = record.get("arguments", record.get("parameters")) if isinstance(record, dict) else None
    if not isinstance(arguments, dict):
        return CallView(name, ())
    return CallView(str(record.get("name", name)), tuple((key, _shown(arguments[key])) for key in arguments))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
