"""Cutting tool calls out of the text for the chat route: our own parsers, and the array of a constrained answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sfusion_tools.formats import CallDelta, ContentDelta, Delta, Format, Problem, ProblemDelta, Toolbox

Tools = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a call as a stream tells it: its name when it begins, then its arguments."""

    index: int
    name: str | None
    arguments: str


@dataclass(slots=True)
class Extract:
    """What was cut out of some text."""

    content: str = ""
    pieces: list[CallPiece] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


class CallStream(Protocol):
    """Cuts one text that comes in deltas."""

    def feed(self, delta: str) -> Extract:
        """What the next delta makes known."""
        ...

    def finish(self, reason: str) -> Extract:
        """What is left when the text is over."""
        ...


class CallParser(Protocol):
    """Cuts texts in one format."""

    def whole(self, text: str, tools: Tools, reason: str) -> Extract | None:
        """Extract a whole text; each piece is a whole call. None when nothing in it looks like a call."""
        ...

    def stream(self, tools: Tools) -> CallStream:
        """Begin to cut a text that comes in deltas."""
        ...


def arguments_text(arguments: Any) -> str:
    """Arguments as the wire carries them."""
    return json.dumps(arguments, ensure_ascii=False)


class OwnParser:
    """Our own formats: no good call is lost, and each refused one is told."""

    def __init__(self, form: Format) -> None:
        self._form = form

    def whole(self, text: str, tools: Tools, reason: str) -> Extract | None:
        """Extract a whole text; calls are counted in their order."""
        parsed = self._form.parse(text, _forgiving(tools), finish_reason=reason)
        if not parsed.calls and not parsed.problems:
            return None
        pieces = [
            CallPiece(number, call.name, arguments_text(call.arguments)) for number, call in enumerate(parsed.calls)
        ]
        return Extract(parsed.content, pieces, list(parsed.problems))

    def stream(self, tools: Tools) -> CallStream:
        """Begin to cut a text that comes in deltas."""
        return _OwnStream(self._form, tools)


class _OwnStream:
    def __init__(self, form: Format, tools: Tools) -> None:
        self._parser = form.stream(_forgiving(tools))
        self._calls = 0

    def feed(self, delta: str) -> Extract:
        return self._collect(self._parser.feed(delta))

    def finish(self, reason: str) -> Extract:
        return self._collect(self._parser.finish(reason))

    def _collect(self, deltas: Sequence[Delta]) -> Extract:
        found = Extract()
        for delta in deltas:
            match delta:
                case ContentDelta(text):
                    found.content += text
                case CallDelta(call):
                    found.pieces.append(CallPiece(self._calls, call.name, ""))
                    found.pieces.append(CallPiece(self._calls, None, arguments_text(call.arguments)))
                    self._calls += 1
                case ProblemDelta(problem):
                    found.problems.append(problem)
        return found


def _forgiving(tools: Tools) -> Toolbox:
    """The parameter types of the tools, but any name goes: who calls what is the client's business."""
    box = Toolbox(tools)
    box.declared = False
    return box


class ArrayParser:
    """The JSON array of ``{"name", "parameters"}`` that constrained decoding gives for formats without a grammar."""

    def whole(self, text: str, tools: Tools, reason: str) -> Extract | None:
        """Extract a whole array; a text that is none stays text."""
        try:
            items = json.loads(text)
            pieces = [
                CallPiece(number, item["name"], arguments_text(item["parameters"])) for number, item in enumerate(items)
            ]
        except (ValueError, TypeError, KeyError):
            return None
        return Extract("", pieces)

    def stream(self, tools: Tools) -> CallStream:
        """Begin to cut an array that comes in deltas."""
        return _ArrayStream()


class _ArrayStream:
    """Gives each object of the array when it is complete."""

    def __init__(self) -> None:
        self._text = ""
        self._calls = 0
        self._decoder = json.JSONDecoder()

    def feed(self, delta: str) -> Extract:
        found = Extract()
        self._text += delta
        while True:
            rest = self._text.lstrip("[], \t\r\n")
            if not rest.startswith("{"):
                break
            try:
                item, end = self._decoder.raw_decode(rest)
            except ValueError:
                break
            self._text = rest[end:]
            if "name" in item:
                found.pieces.append(CallPiece(self._calls, item["name"], ""))
                found.pieces.append(CallPiece(self._calls, None, arguments_text(item.get("parameters", {}))))
                self._calls += 1
        return found

    def finish(self, reason: str) -> Extract:
        return Extract()
