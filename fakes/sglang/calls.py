"""Extracts tool calls from text for the chat route.

Free text is read by our own parsers, the answer of constrained decoding as an array of calls.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.formats import Delta, Format, Parsed, Problem, Toolbox, get_format
from sfusion_tools.formats.jsontext import scan_json
from sfusion_tools.formats.text_reader import Scan, TextReader

_BETWEEN_OBJECTS = re.compile(r"[\[\], \t\r\n]+")

ToolList = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a call in a stream: first its name, then its arguments."""

    index: int
    name: str | None
    arguments: str


@dataclass(slots=True)
class Extract:
    """The content, the calls and the problems extracted from some text."""

    content: str = ""
    pieces: list[CallPiece] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def arguments_text(arguments: Any) -> str:
    """Encode arguments as the answer contains them."""
    return json.dumps(arguments, ensure_ascii=False)


class OwnParser:
    """Our own parsers: no good call is lost, and each refused one is reported."""

    def __init__(self, form: Format) -> None:
        self._form = form

    def whole(self, text: str, tools: ToolList, reason: str) -> Extract | None:
        """Extract from a whole text; each piece is a whole call.

        Returns None if nothing in the text looks like a call.
        """
        parsed = self._form.parse(text, _with_any_name(tools), finish_reason=reason)
        if not parsed.calls and not parsed.problems:
            return None

        pieces = [
            CallPiece(number, call.name, arguments_text(call.arguments))
            for number, call in enumerate(parsed.calls)
        ]
        return Extract(parsed.content, pieces, list(parsed.problems))

    def stream(self, tools: ToolList) -> OwnStream:
        return OwnStream(self._form, tools)


def call_parser(name: str | None) -> OwnParser | None:
    """Return the parser of a format; without a name, calls stay in the text, as in sglang."""
    return None if name is None else OwnParser(get_format(name))


class OwnStream:
    """Extracts the calls from one text that arrives in deltas."""

    def __init__(self, form: Format, tools: ToolList) -> None:
        self._parser = form.stream(_with_any_name(tools))
        self._calls = 0
        self._sizes: list[int] = []
        """The lengths of the deltas since the last call."""

    def feed(self, delta: str) -> Extract:
        """Return what is certain after the next delta."""
        if delta:
            self._sizes.append(len(delta))
        return self._collect(self._parser.feed(delta))

    def finish(self, reason: str) -> Extract:
        """Return the rest, at the end of the text."""
        return self._collect(self._parser.finish(reason))

    def _collect(self, deltas: Sequence[Delta]) -> Extract:
        parsed = Parsed.of(deltas)
        found = Extract(parsed.content, problems=list(parsed.problems))
        for call in parsed.calls:
            found.pieces += streamed_call(self._calls, call.name, call.arguments, self._sizes)
            self._calls += 1
        if parsed.calls:
            self._sizes = self._sizes[-1:]
        return found


def streamed_call(
    index: int, name: str, arguments: Any, sizes: Sequence[int] = ()
) -> list[CallPiece]:
    """Return a call as a stream has it: its name first, then its arguments in pieces.

    Only the end of a call shows whether it is valid, so the pieces come together, but each is as
    long as one of the deltas in which the call was written.
    """
    pieces = [CallPiece(index, name, "")]
    text = arguments_text(arguments)
    start = 0
    for size in itertools.cycle(sizes or [len(text)]):
        pieces.append(CallPiece(index, None, text[start : start + size]))
        start += size
        if start >= len(text):
            return pieces
    return pieces


def _with_any_name(tools: ToolList) -> Toolbox:
    """Keep the parameter types of the tools but accept any name.

    Whether to refuse an unknown tool is up to the client.
    """
    box = Toolbox(tools)
    box.declared = False
    return box


class ArrayParser:
    """Reads the JSON array that constrained decoding writes for a format without a grammar.

    Its items are objects with ``name`` and ``parameters``.
    """

    def whole(self, text: str, tools: ToolList, reason: str) -> Extract | None:
        try:
            items = json.loads(text)
            pieces = [
                CallPiece(number, item["name"], arguments_text(item["parameters"]))
                for number, item in enumerate(items)
            ]
        except (ValueError, TypeError, KeyError):
            return None
        return Extract("", pieces)

    def stream(self, tools: ToolList) -> ArrayStream:
        return ArrayStream()


class ArrayStream:
    """Returns each object of the array when it is complete."""

    def __init__(self) -> None:
        self._reader = TextReader()
        self._found = Extract()
        self._calls = 0
        self._sizes: list[int] = []
        self._run = self._objects()
        next(self._run)

    def feed(self, delta: str) -> Extract:
        if delta:
            self._sizes.append(len(delta))
        self._reader.feed(delta)
        next(self._run, None)
        found = self._found
        self._found = Extract()
        return found

    def finish(self, reason: str) -> Extract:
        return Extract()

    def _objects(self) -> Scan[None]:
        yield
        while True:
            yield from self._reader.run(_BETWEEN_OBJECTS)
            scan = yield from scan_json(self._reader)
            try:
                item = json.loads(scan.text)
            except (ValueError, RecursionError):
                return

            if not isinstance(item, dict):
                return
            if "name" in item:
                parameters = item.get("parameters", {})
                self._found.pieces += streamed_call(
                    self._calls, item["name"], parameters, self._sizes
                )
                self._sizes = self._sizes[-1:]
                self._calls += 1
