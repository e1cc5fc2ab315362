"""What sglang's parsers of JSON calls send while a text streams, and what they lose on the way.

All of them work alike: they keep the text since the last call in a buffer, read its JSON again with every delta, send
the name when it is known and then the arguments as far as two readings in a row agree, which is one delta late.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sfusion.fakes.sglang.quirks_partial import BrokenJson, partial_json
from sfusion.fakes.sglang.quirks_whole import ToolTable, dumped

__all__ = [
    "JsonQuirkStream",
    "LlamaQuirkStream",
    "MistralQuirkStream",
    "QuirkDelta",
    "QuirkPiece",
    "QuirkStream",
    "overlap",
]


@dataclass(frozen=True, slots=True)
class QuirkPiece:
    """A part of a call on the wire: a name, or some arguments."""

    index: int
    name: str | None
    arguments: str


@dataclass(slots=True)
class QuirkDelta:
    """What one delta of the engine becomes."""

    content: str = ""
    pieces: list[QuirkPiece] = field(default_factory=list)


class QuirkStream(Protocol):
    """Cuts one text as it comes."""

    def feed(self, delta: str) -> QuirkDelta:
        """What this delta becomes."""
        ...

    def finish(self) -> QuirkDelta:
        """What the server sends behind the last delta."""
        ...


@dataclass
class Grammar:
    """What the formats of this kind differ in."""

    opening: str
    closing: str
    separator: str
    bare: bool = False
    """A text that begins with a brace is a call, too."""
    trims: bool = False
    """White space behind a call is dropped with it."""


HERMES = Grammar("<tool_call>", "</tool_call>", "", trims=True)
QWEN = Grammar("<tool_call>\n", "\n</tool_call>", "\n")
LLAMA = Grammar("<|python_tag|>", "", ";", bare=True)
MISTRAL = Grammar("[TOOL_CALLS] [", "]", "")
_PYTHON_DICT = re.compile(r"\{\s*'[^']*'\s*:")
_COMPACT = re.compile(r"\[TOOL_CALLS\]?\s*([^\s{]+?)\s*\[ARGS\]?\s*(?=[{\[])")


class JsonQuirkStream:
    """The common streaming of hermes, qwen, llama3 and mistral's list."""

    def __init__(self, grammar: Grammar, tools: Sequence[Any]) -> None:
        self.grammar = grammar
        self.table = ToolTable.of(tools)
        self.buffer = ""
        self.call = -1
        self.named = False
        self.sent: list[str] = []
        self.seen: list[dict[str, Any]] = []

    def feed(self, delta: str) -> QuirkDelta:
        self.buffer += delta
        if not self._in_call():
            return QuirkDelta(self._plain())
        try:
            return QuirkDelta("", self._advance())
        except (BrokenJson, AttributeError, TypeError, KeyError, IndexError):
            return QuirkDelta()

    def finish(self) -> QuirkDelta:
        """The server compares what it knows of the last call with what it sent, and sends the difference."""
        if not self.seen or not self.sent:
            return QuirkDelta()
        place = len(self.seen) - 1
        arguments = self.seen[place].get("arguments")
        if arguments is None:
            return QuirkDelta()
        known = dumped(arguments)
        sent = self.sent[place] if place < len(self.sent) else ""
        rest = known.replace(sent, "", 1) if sent in known else ""
        return QuirkDelta("", [QuirkPiece(place, None, rest)] if rest else [])

    def _in_call(self) -> bool:
        grammar = self.grammar
        if grammar.trims and self.call >= 0 and self.buffer.startswith(grammar.closing):
            self.buffer = self.buffer[len(grammar.closing) :]
        if not grammar.trims and grammar.closing and self.call > 0 and self.buffer.startswith(grammar.closing):
            self.buffer = self.buffer[len(grammar.closing) :]
        if grammar.opening in self.buffer or (grammar.bare and self.buffer.startswith("{")):
            return True
        return self.call > 0 and bool(grammar.separator) and self.buffer.startswith(grammar.separator)

    def _plain(self) -> str:
        grammar = self.grammar
        held = max(overlap(self.buffer, grammar.opening), overlap(self.buffer, grammar.closing.lstrip("\n")))
        if held:
            return ""
        text, self.buffer = self.buffer, ""
        bare = grammar.closing.lstrip("\n")
        return text.replace(grammar.closing, "").replace(bare, "") if bare else text

    def _advance(self) -> list[QuirkPiece]:
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
            self._forget()
            return []
        if "parameters" in found:
            found["arguments"] = found["parameters"]
        if not found:
            return []
        if not self.named:
            return self._name(found)
        return self._arguments(found, begin + end, complete)

    def _forget(self) -> None:
        """An unknown name throws away all that came with it, and the count of calls."""
        self.buffer = ""
        self.call = -1
        self.named = False
        if self.sent:
            self.sent.pop()

    def _name(self, found: dict[str, Any]) -> list[QuirkPiece]:
        name = found.get("name")
        if not name:
            return []
        self.call = max(self.call, 0)
        while len(self.sent) <= self.call:
            self.sent.append("")
        self.named = True
        return [QuirkPiece(self.call, name, "")]

    def _arguments(self, found: dict[str, Any], end: int, complete: bool) -> list[QuirkPiece]:
        call = self.call
        pieces: list[QuirkPiece] = []
        arguments = found.get("arguments")
        if arguments is not None:
            text = dumped(arguments)
            if complete:
                pieces.append(QuirkPiece(call, None, text[len(self.sent[call]) :]))
                self._completed(end)
                return pieces
            before = self.seen[call].get("arguments") if call < len(self.seen) else None
            if before and dumped(before) != text:
                news = _agreed(dumped(before), text)[len(self.sent[call]) :]
                pieces.append(QuirkPiece(call, None, news))
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


class LlamaQuirkStream(JsonQuirkStream):
    """Stops for good at a Python dict inside a string, which it takes for the spelling of the call."""

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(LLAMA, tools)

    def _advance(self) -> list[QuirkPiece]:
        if _PYTHON_DICT.search(self.buffer):
            raise BrokenJson(self.buffer[:40])
        return super()._advance()


class MistralQuirkStream(JsonQuirkStream):
    """The list keeps its first call only; the compact form waits for whole arguments."""

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(MISTRAL, tools)

    def feed(self, delta: str) -> QuirkDelta:
        begin = (self.buffer + delta).find("[TOOL_CALLS")
        if begin < 0:
            return super().feed(delta)
        text = self.buffer + delta
        before, self.buffer = text[:begin], text[begin:]
        listed = "[TOOL_CALLS] ["
        if self.buffer.startswith(listed) or listed.startswith(self.buffer):
            found = super().feed("")
            return QuirkDelta(before + found.content, found.pieces)
        return self._compact(before)

    def _compact(self, before: str) -> QuirkDelta:
        match = _COMPACT.match(self.buffer)
        if match is None:
            return QuirkDelta(before)
        try:
            value, end, complete = partial_json(self.buffer[match.end() :], strings=True)
        except BrokenJson:
            return QuirkDelta(before)
        if not complete:
            return QuirkDelta(before)
        text, self.buffer = self.buffer[: match.end() + end], self.buffer[match.end() + end :]
        if match[1] not in self.table.places:
            return QuirkDelta(before + text)
        self.call = max(self.call, 0)
        pieces = [QuirkPiece(self.call, match[1], ""), QuirkPiece(self.call, None, dumped(value))]
        self.call += 1
        rest = self.feed("") if self.buffer else QuirkDelta()
        return QuirkDelta(before + rest.content, pieces + rest.pieces)


def _agreed(one: str, other: str) -> str:
    """What two texts begin with in common."""
    size = min(len(one), len(other))
    return one[: next((place for place in range(size) if one[place] != other[place]), size)]


def overlap(text: str, token: str) -> int:
    """How much of the end of ``text`` may be the beginning of ``token``."""
    for size in range(min(len(text), len(token) - 1), 0, -1):
        if text.endswith(token[:size]):
            return size
    return 0
