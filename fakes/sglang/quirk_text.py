"""The common parts of the imitations of sglang's own parsers; see docs/tool-call-formats.md.

They imitate recordings of sglang's parsers (August 2026), contain none of their code, and are measured against the
recordings. A parser that raises in sglang raises here, too.
"""

from __future__ import annotations

import ast
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.fakes.sglang.calls import CallPiece, Extract, arguments_text, markers
from sfusion_tools.formats.literal import is_json_tree


class QuirkError(Exception):
    """Raised where sglang's parser raises: the request ends without any of its calls."""


@dataclass
class ToolTable:
    """The tools by name: their positions and their parameters."""

    places: dict[str, int] = field(default_factory=dict)
    parameters: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, tools: Sequence[Any]) -> ToolTable:
        table = cls()
        for place, tool in enumerate(tools):
            function = tool.get("function") or tool
            table.places[function["name"]] = place
            table.parameters[function["name"]] = (function.get("parameters") or {}).get("properties") or {}
        return table

    def type_of(self, name: str, key: str) -> str | None:
        kind = self.parameters.get(name, {}).get(key, {}).get("type")
        return kind if isinstance(kind, str) else None


def from_objects(found: Any, table: ToolTable) -> list[CallPiece]:
    """Read calls from decoded JSON: unknown tools are dropped, and the index is the position of the tool."""
    calls = []
    for item in found if isinstance(found, list) else [found]:
        if not isinstance(item, dict):
            raise QuirkError(f"AttributeError: {type(item).__name__!r} object has no attribute 'get'")
        name = item.get("name")
        if not isinstance(name, str) or name not in table.places:
            continue
        arguments = item.get("parameters") or item.get("arguments", {})
        calls.append(CallPiece(table.places[name], name, arguments_text(arguments)))
    return calls


def behind(
    opening: str, read: Callable[[str, ToolTable], list[CallPiece] | None]
) -> Callable[[str, ToolTable], Extract]:
    """Make a parser that takes what stands before ``opening`` for content; all of it if ``read`` gives up."""

    def parse(text: str, table: ToolTable) -> Extract:
        start = text.find(opening)
        calls = read(text, table) if start >= 0 else None
        return Extract(text) if calls is None else Extract(text[:start].strip(), calls)

    return parse


def literal(text: str) -> Any:
    """Evaluate a Python literal that JSON could express; raises ValueError for anything else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text.strip())
    except (SyntaxError, RecursionError, MemoryError, TypeError) as error:
        raise ValueError(text) from error
    if not is_json_tree(value):
        raise ValueError(text)
    return value


def json_or_literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return literal(text)


def held(text: str, *tokens: str) -> int:
    """Return how much of the end of ``text`` may become one of ``tokens``."""
    return markers(tokens).unfinished(text, 0)


class QuirkStream(ABC):
    """Parses one text as it streams."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.table = ToolTable.of(tools)
        self.buffer = ""

    @abstractmethod
    def feed(self, delta: str) -> Extract: ...

    def finish(self, reason: str) -> Extract:
        return Extract()

    def _take_plain(self, *tokens: str) -> str:
        """Take what cannot become one of ``tokens`` off the front of the buffer."""
        size = len(self.buffer) - held(self.buffer, *tokens)
        text, self.buffer = self.buffer[:size], self.buffer[size:]
        return text


class SteppedQuirkStream(QuirkStream):
    """Consumes the front of the buffer in steps."""

    def feed(self, delta: str) -> Extract:
        self.buffer += delta
        result = Extract()
        while self._step(result):
            pass
        return result

    @abstractmethod
    def _step(self, result: Extract) -> bool:
        """Move something from the front of the buffer to ``result``; return False if more text is needed."""


class TokenQuirkStream(QuirkStream):
    """Sends a name once it is known, then each addition to its arguments."""

    def __init__(self, tools: Sequence[Any]) -> None:
        super().__init__(tools)
        self.call = 0
        self.named = False
        self.sent = ""

    def _send(self, name: str, body: str) -> list[CallPiece]:
        if not self.named:
            self.named = True
            self.sent = ""
            return [CallPiece(self.call, name or None, "")]
        news = body[len(self.sent) :] if body.startswith(self.sent) else body
        self.sent += news
        return [CallPiece(self.call, None, news)] if news else []

    def _next(self, rest: str) -> None:
        self.buffer = rest
        self.call += 1
        self.named = False
