"""What sglang's parsers of JSON calls send while a text streams, and what they lose on the way.

All of them work alike: they keep the text since the last call in a buffer, read its incomplete JSON again with every
delta, send the name when it is known and then the arguments as far as two consecutive readings agree, which is one
delta late.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.quirk_text import QuirkStream, held

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^\s,\]}]*")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CHARACTERS = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*", re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_WORDS = {"null": None, "true": True, "false": False, "NaN": float("nan"), "Infinity": float("inf")}


class BrokenJson(ValueError):
    """Raised for a text that cannot be the beginning of JSON."""


class _Open(Exception):
    """Raised at the end of the text inside a value; holds what was read of it, if that counts."""

    def __init__(self, value: Any = None, *, counts: bool = True) -> None:
        super().__init__()
        self.value = value
        self.counts = counts


def partial_json(text: str, *, strings: bool) -> tuple[Any, int, bool]:
    """Return the value at the beginning of ``text``, where it ends, and whether it is complete.

    Without ``strings``, an incomplete string does not count.
    """
    begin = _skip(text, 0)
    try:
        value, end = json.JSONDecoder().raw_decode(text, begin)
        return value, end, True
    except ValueError:
        pass
    try:
        _value(text, begin, strings)
    except _Open as unfinished:
        if unfinished.counts:
            return unfinished.value, len(text), False
    raise BrokenJson(text[:40])


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _value(text: str, at: int, strings: bool) -> tuple[Any, int]:
    at = _skip(text, at)
    if at >= len(text):
        raise _Open(counts=False)
    match text[at]:
        case "{" | "[":
            return _container(text, at + 1, strings)
        case '"':
            return _string(text, at, strings)
        case _:
            return _scalar(text, at)


def _string(text: str, at: int, strings: bool) -> tuple[str, int]:
    closed = _STRING.match(text, at)
    if closed is not None:
        return _decoded(closed[0]), closed.end()
    if not strings:
        raise _Open(counts=False)
    inside = text[at + 1 :].rstrip()
    whole = _CHARACTERS.match(inside)
    if whole is not None and _HALF_ESCAPE.match(inside, whole.end()):
        inside = whole[0]
    raise _Open(_decoded(f'"{inside}"'))


def _decoded(literal: str) -> str:
    try:
        return str(json.loads(literal))
    except ValueError as error:
        raise BrokenJson(literal[:40]) from error


def _scalar(text: str, at: int) -> tuple[Any, int]:
    match = _SCALAR.match(text, at)
    word = match[0] if match else ""
    end = at + len(word)
    if end < len(text):
        try:
            return json.loads(word), end
        except ValueError as error:
            raise BrokenJson(word) from error
    for name, value in _WORDS.items():
        if name.startswith(word):
            raise _Open(value)
    while word:
        try:
            raise _Open(json.loads(word))
        except ValueError:
            word = word[:-1]
    raise BrokenJson(text[at : at + 20])


def _container(text: str, at: int, strings: bool) -> tuple[Any, int]:
    """Read the rest of an object or array whose bracket is right before ``at``."""
    is_object = text[at - 1] == "{"
    closing = "}" if is_object else "]"
    items: list[tuple[str, Any]] = []

    def so_far() -> Any:
        return dict(items) if is_object else [item for _, item in items]

    while True:
        at = _skip(text, at)
        if text[at : at + 1] == closing:
            return so_far(), at + 1
        key = ""
        try:
            if is_object:
                at = _expect(text, at, '"')
                key, at = _string(text, at, strings)
                at = _expect(text, at, ":") + 1
            elif at >= len(text):
                raise _Open(counts=False)
        except _Open:
            raise _Open(so_far()) from None
        try:
            item, at = _value(text, at, strings)
        except _Open as unfinished:
            items += [(key, unfinished.value)] * unfinished.counts
            raise _Open(so_far()) from None
        items.append((key, item))
        at = _skip(text, at)
        if at >= len(text):
            raise _Open(so_far())
        if text[at] != closing:
            at = _expect(text, at, ",") + 1


def _expect(text: str, at: int, sign: str) -> int:
    """Return where the sign stands that must come next."""
    at = _skip(text, at)
    if at >= len(text):
        raise _Open(counts=False)
    if text[at] != sign:
        raise BrokenJson(text[at : at + 20])
    return at


@dataclass
class Grammar:
    """The differences between formats of this kind."""

    opening: str
    closing: str
    separator: str
    bare: bool = False
    """A text that begins with a brace is also a call."""
    trims: bool = False
    """White space after a call is dropped with it."""


class JsonQuirkStream(QuirkStream):
    """Streams hermes, qwen, llama3 and mistral's list."""

    grammar: ClassVar[Grammar]

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.call = -1
        self.named = False
        self.sent: list[str] = []
        self.seen: list[dict[str, Any]] = []

    def feed(self, delta: str) -> Extract:
        self.buffer += delta
        if not self._in_call():
            return Extract(self._plain())
        try:
            return Extract("", self._advance())
        except (BrokenJson, AttributeError, TypeError, KeyError, IndexError):
            return Extract()

    def finish(self, reason: str) -> Extract:
        """Send the difference between what is known of the last call and what was sent, as the server does."""
        if not self.seen or not self.sent:
            return Extract()
        place = len(self.seen) - 1
        arguments = self.seen[place].get("arguments")
        if arguments is None:
            return Extract()
        known = arguments_text(arguments)
        sent = self.sent[place] if place < len(self.sent) else ""
        rest = known.replace(sent, "", 1) if sent in known else ""
        return Extract("", [CallPiece(place, None, rest)] if rest else [])

    def _in_call(self) -> bool:
        grammar = self.grammar
        if self.call >= (0 if grammar.trims else 1):
            self.buffer = self.buffer.removeprefix(grammar.closing)
        if grammar.opening in self.buffer or (grammar.bare and self.buffer.startswith("{")):
            return True
        return self.call > 0 and bool(grammar.separator) and self.buffer.startswith(grammar.separator)

    def _plain(self) -> str:
        grammar = self.grammar
        bare = grammar.closing.lstrip("\n")
        if held(self.buffer, grammar.opening, bare):
            return ""
        text, self.buffer = self.buffer, ""
        return text.replace(grammar.closing, "").replace(bare, "") if bare else text

    def _advance(self) -> list[CallPiece]:
        grammar = self.grammar
        begin = self.buffer.find(grammar.opening)
        if begin >= 0:
            begin += len(grammar.opening)
        else:
            begin = len(grammar.separator) if self.call > 0 and self.buffer.startswith(grammar.separator) else 0
        if begin >= len(self.buffer):
            return []
        found, end, complete = partial_json(self.buffer[begin:], strings=self.named)
        if "name" in found and found["name"] not in self.table.places:
            self._reset()
            return []
        if "parameters" in found:
            found["arguments"] = found["parameters"]
        if not found:
            return []
        if not self.named:
            return self._name(found)
        return self._arguments(found, begin + end, complete)

    def _reset(self) -> None:
        """Drop the buffer and the count of calls, as sglang does after an unknown name."""
        self.buffer = ""
        self.call = -1
        self.named = False
        if self.sent:
            self.sent.pop()

    def _name(self, found: dict[str, Any]) -> list[CallPiece]:
        name = found.get("name")
        if not name:
            return []
        self.call = max(self.call, 0)
        while len(self.sent) <= self.call:
            self.sent.append("")
        self.named = True
        return [CallPiece(self.call, name, "")]

    def _arguments(self, found: dict[str, Any], end: int, complete: bool) -> list[CallPiece]:
        call = self.call
        pieces: list[CallPiece] = []
        arguments = found.get("arguments")
        if arguments is not None:
            text = arguments_text(arguments)
            if complete:
                pieces.append(CallPiece(call, None, text[len(self.sent[call]) :]))
                self._completed(end)
                return pieces
            before = self.seen[call].get("arguments") if call < len(self.seen) else None
            if before and arguments_text(before) != text:
                news = _agreed(arguments_text(before), text)[len(self.sent[call]) :]
                pieces.append(CallPiece(call, None, news))
                self.sent[call] += news
        while len(self.seen) <= call:
            self.seen.append({})
        self.seen[call] = found
        return [piece for piece in pieces if piece.arguments]

    def _completed(self, end: int) -> None:
        rest = self.buffer[end:]
        self.buffer = rest.lstrip() if self.grammar.trims else rest
        if self.call < len(self.seen):
            self.seen[self.call] = {}
        self.sent[self.call] = ""
        self.named = False
        self.call += 1


def _agreed(one: str, other: str) -> str:
    """Return the common prefix of two texts."""
    size = min(len(one), len(other))
    return one[: next((place for place in range(size) if one[place] != other[place]), size)]
