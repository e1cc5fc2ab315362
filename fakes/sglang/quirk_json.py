"""What sglang's parsers of JSON calls send while a text streams, and what they lose on the way.

All of them work alike: they keep the text since the last call in a buffer, read its incomplete JSON again with every
delta, send the name when it is known and then the arguments as far as two consecutive readings agree, which is one
delta late.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text
from sfusion.fakes.sglang.quirk_text import QuirkStream, held

_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_CHARACTERS = re.compile(r"(?:[^\\]|\\[^u]|\\u[0-9a-fA-F]{4})*", re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
# In a text whose strings are blacked out:
_LAST_SCALAR = re.compile(r"[^\s,\[\]{}:\0]+\Z")
_LAST_KEY = re.compile(r"(?<=[{,])\s*\0+\s*:?\s*\Z")
_IDLE_COMMA = re.compile(r"(?<=[\w\0\]}])\s*,(?=\s*(?:[\]}]|\Z))")
_WORDS = ("null", "true", "false", "NaN", "Infinity")


class BrokenJson(ValueError):
    """Raised for a text that cannot be the beginning of JSON."""


def partial_json(text: str, *, strings: bool) -> tuple[Any, int, bool]:
    """Return the value at the beginning of ``text``, where it ends, and whether it is complete.

    Without ``strings``, an incomplete string does not count.
    """
    try:
        value, end = json.JSONDecoder().raw_decode(text, len(text) - len(text.lstrip(" \t\r\n")))
        return value, end, True
    except ValueError:
        pass
    try:
        return json.loads(_closed(text, strings)), len(text), False
    except ValueError as error:
        raise BrokenJson(text[:40]) from error


def _closed(text: str, strings: bool) -> str:
    """Close what is open at the end of the text, and leave out what does not count yet."""
    signs = _STRING.sub(_blacked_out, text)
    begin, last = signs.find('"'), ""
    if begin >= 0:
        if signs[:begin].rstrip()[-1:] not in ("", *"{[,:"):
            raise BrokenJson(text[:40])
        last = _closed_string(text[begin + 1 :]) if strings else ""
    elif scalar := _LAST_SCALAR.search(signs):
        begin, last = scalar.start(), _completed_scalar(scalar[0])
    else:
        begin = len(text)
    signs = signs[:begin]
    closing = ""
    for bracket in re.findall(r"[\[\]{}]", signs):
        if bracket in "[{":
            closing = ("]" if bracket == "[" else "}") + closing
        elif closing[:1] == bracket:
            closing = closing[1:]
        else:
            raise BrokenJson(text[:40])
    if not closing and signs.strip():
        raise BrokenJson(text[:40])  # it is complete, and not JSON
    if closing[:1] == "}":
        if last[:1] == '"' and not signs.rstrip().endswith(":"):
            last = ""  # a key
        if not last:
            signs = _LAST_KEY.sub("", signs)
    kept = text[: len(signs)]
    for comma in reversed(list(_IDLE_COMMA.finditer(signs + last))):
        kept = kept[: comma.start()] + kept[comma.end() :]
    return kept + last + closing


def _blacked_out(string: re.Match[str]) -> str:
    json.loads(string[0])  # a broken one counts even if it is left out
    return "\0" * len(string[0])


def _closed_string(inside: str) -> str:
    """Close a string; half an escape at its end does not count."""
    inside = inside.rstrip()
    whole = _CHARACTERS.match(inside)
    if whole is not None and _HALF_ESCAPE.match(inside, whole.end()):
        inside = whole[0]
    json.loads(f'"{inside}"')
    return f'"{inside}"'


def _completed_scalar(scalar: str) -> str:
    """Complete a word; of a number, return as much as is one."""
    for word in _WORDS:
        if word.startswith(scalar):
            return word
    for size in range(len(scalar), 0, -1):
        with suppress(ValueError):
            json.loads(scalar[:size])
            return scalar[:size]
    raise BrokenJson(scalar)


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
