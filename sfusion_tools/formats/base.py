"""A format: one way in which a model family writes tool calls."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, TypeAlias

from sfusion_tools.errors import RenderError

from .model import Parsed
from .streamparser import THOUGHT, StreamParser, Tools
from .toolbox import Toolbox

__all__ = ["CallLike", "Format", "joined"]

CallLike: TypeAlias = Any
"""Anything with ``name`` and ``arguments``, as attributes or as keys."""


def joined(content: str, calls: str) -> str:
    """Content and calls as models put them after each other: thinking is followed by an empty line."""
    if not content:
        return calls
    return content + ("\n\n" if content.endswith(THOUGHT) else "\n") + calls


class Format(ABC):
    """One way in which a model family writes tool calls."""

    name: ClassVar[str]
    aliases: ClassVar[tuple[str, ...]] = ()
    variants: ClassVar[tuple[str, ...]] = ("",)
    """The spellings that ``render`` can choose between; the first is the usual one."""
    example: ClassVar[str]
    """How a call is written, to be shown to the model."""
    parser: ClassVar[type[StreamParser]]

    def parse(
        self, text: str, tools: Tools = None, *, in_think: bool = False, finish_reason: str | None = None
    ) -> Parsed:
        """Read a whole text. It is the stream parser fed once, so both always agree."""
        stream = self.stream(tools, in_think=in_think)
        return Parsed.of([*stream.feed(text), *stream.finish(finish_reason)])

    def stream(self, tools: Tools = None, *, in_think: bool = False) -> StreamParser:
        """A parser for a text that arrives in pieces; ``in_think`` if the prompt ended inside the thinking."""
        return self.parser(self, tools, in_think=in_think)

    def render(
        self, calls: Iterable[CallLike], content: str = "", *, tools: Tools = None, variant: str | None = None
    ) -> str:
        """The text in which a model would make these calls.

        Raises RenderError when the format has no spelling that would be read back as the same calls.
        """
        chosen = self.variants[0] if variant is None else variant
        if chosen not in self.variants:
            raise RenderError(f"{self.name} has no variant {variant!r}; there are: {', '.join(self.variants)}")
        plain = [_plain_call(call) for call in calls]
        toolbox = Toolbox(tools)
        text = self.write(plain, content, toolbox, chosen) if plain else content
        self._check(text, plain, content, toolbox)
        return text

    @abstractmethod
    def write(self, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox, variant: str) -> str:
        """The text, not yet checked; there is at least one call."""

    def _check(self, text: str, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox) -> None:
        """Read the text back: what cannot be read as it was meant must not be written."""
        read = self.parse(text, tools if tools.declared else None)
        got = [(call.name, call.arguments) for call in read.calls]
        unknown = [problem for problem in read.problems if problem.kind == "unknown_tool"]
        if unknown:
            read = self.parse(text, None)
            got = [(call.name, call.arguments) for call in read.calls]
        if not _same(got, calls):
            why = read.problems[0].message if read.problems else "it would be read back differently"
            raise RenderError(f"{self.name} cannot express these calls: {why}")
        if read.content.strip() != content.strip():
            raise RenderError(f"{self.name} cannot express this content: it holds markers of the format itself")


def _plain_call(call: CallLike) -> tuple[str, dict[str, Any]]:
    name, arguments = (call["name"], call["arguments"]) if isinstance(call, dict) else (call.name, call.arguments)
    if not isinstance(name, str) or not name:
        raise RenderError(f"a call needs a name, found {name!r}")
    if not isinstance(arguments, dict):
        raise RenderError(f"the arguments of {name} must be an object, found {type(arguments).__name__}")
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RenderError(f"the arguments of {name} are not JSON: {error}") from error
    return name, arguments


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three different values."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)
