"""A format: one way in which a model family writes tool calls."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, TypeAlias

from sfusion_tools.bounded_input import levels
from sfusion_tools.errors import RenderError

from .jsontext import DEEPEST, dump
from .model import Parsed
from .streamparser import Declaration, StreamParser, Tools
from .toolbox import Toolbox

CallLike: TypeAlias = Any
"""Anything with ``name`` and ``arguments``, as attributes or as keys."""


class Format(Declaration):
    """One way in which a model family writes tool calls.

    A subclass in a module of ``families`` is registered under its ``name`` and its ``aliases``.
    """

    aliases: ClassVar[tuple[str, ...]] = ()
    marks: ClassVar[tuple[re.Pattern[str], ...]] = ()
    """Patterns that show that a text tries to make a call in this format.

    They include common misspellings of its markers. Families that share a marker declare the same
    pattern.
    """
    models: ClassVar[str] = ""
    """A regular expression for the ids of the models that use it."""
    signs: ClassVar[tuple[str, ...]] = ()
    """Texts of which a chat template with this format has all."""
    signs_are_common: ClassVar[bool] = False
    """Models with other formats have the same signs; a template that writes calls tells more."""
    parser: ClassVar[type[StreamParser]]
    variants: ClassVar[tuple[str, ...]] = ("",)
    """The spellings that ``render`` can choose between; the first is the default."""
    call: ClassVar[str]
    """One call, with ``{name}`` and ``{arguments}``, perhaps with ``{number}`` or ``{id}``."""
    first_number: ClassVar[int] = 0
    closing: ClassVar[str]
    """A marker that ends a call, unless it is inside a string."""
    section: ClassVar[tuple[str, str, str]] = ("", "\n", "")
    """What is written before, between and after the calls of a turn."""

    @property
    def example(self) -> str:
        arguments = self.write_arguments("TOOL", {"KEY": "VALUE"}, Toolbox())
        return self.write_section([self.write_call("TOOL", arguments)])

    def parse(
        self,
        text: str,
        tools: Tools = None,
        *,
        in_think: bool = False,
        finish_reason: str | None = None,
    ) -> Parsed:
        """Parse a whole text. This feeds the stream parser once, so both always agree."""
        stream = self.stream(tools, in_think=in_think)
        return Parsed.of([*stream.feed(text), *stream.finish(finish_reason)])

    def stream(self, tools: Tools = None, *, in_think: bool = False) -> StreamParser:
        """Return a parser for a text that arrives in pieces.

        ``in_think`` if the prompt ended inside the thinking.
        """
        return self.parser(self, tools, in_think=in_think)

    def render(
        self,
        calls: Iterable[CallLike],
        content: str = "",
        *,
        tools: Tools = None,
        variant: str | None = None,
    ) -> str:
        """Return the text in which a model would make these calls.

        Raises RenderError when the format has no spelling that would be read back as the same
        calls.
        """
        chosen = self.variants[0] if variant is None else variant
        if chosen not in self.variants:
            raise RenderError(
                f"{self.name} has no variant {variant!r}; there are: {', '.join(self.variants)}"
            )
        plain = [_plain_call(call) for call in calls]
        toolbox = Toolbox(tools)
        text = content
        if plain:
            text = self._after(content) + self.write(plain, toolbox, chosen)
        self._check(text, plain, content, toolbox)
        return text

    def _after(self, content: str) -> str:
        """Return the content, and what a model leaves between it and its calls."""
        if not content:
            return ""
        think_marks = self.parser.think_marks
        after_thinking = bool(think_marks) and content.endswith(think_marks[1])
        return content + ("\n\n" if after_thinking else "\n")

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        """Write the calls, of which there is at least one. ``render`` checks the result."""
        written: list[str] = []
        for place, (name, arguments) in enumerate(calls):
            text = self.write_arguments(name, arguments, tools)
            written.append(self.write_call(name, text, place))
        return self.write_section(written)

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        """Write the arguments of a call of tool ``name``."""
        return dump(arguments)

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        """Write a call with arguments that are already text.

        ``place`` is its position in the section, from 0.
        """
        parts = {
            "{name}": name,
            "{number}": str(self.first_number + place),
            "{id}": f"call{place:06}",
            "{arguments}": arguments,
        }
        return re.sub(r"\{(?:name|number|id|arguments)\}", lambda part: parts[part[0]], self.call)

    def write_section(self, calls: Sequence[str]) -> str:
        """Write the section of a turn out of calls that are already text."""
        begin, between, end = self.section
        return begin + between.join(calls) + end

    def write_thinking(self, text: str, *, closed: bool = True) -> str:
        """Write thinking; without its end if not ``closed``."""
        begin, end = self.parser.think_marks
        thinking = f"{begin}\n{text}\n"
        return f"{thinking}{end}\n\n" if closed else thinking

    def _check(
        self, text: str, calls: list[tuple[str, dict[str, Any]]], content: str, tools: Toolbox
    ) -> None:
        """Read the text back and raise RenderError if the result differs."""
        read = self.parse(text, tools if tools.declared else None)
        if any(problem.kind == "unknown_tool" for problem in read.problems):
            read = self.parse(text, None)
        if not _same([(call.name, call.arguments) for call in read.calls], calls):
            why = read.problems[0].message if read.problems else "it would be read back differently"
            raise RenderError(f"{self.name} cannot express these calls: {why}")
        if read.content.strip() != content.strip():
            raise RenderError(
                f"{self.name} cannot express this content: it contains markers of the format itself"
            )


def _plain_call(call: CallLike) -> tuple[str, dict[str, Any]]:
    """Return name and arguments of a call; raises RenderError if they cannot be a call's."""
    if isinstance(call, dict):
        name = call["name"]
        arguments = call["arguments"]
    else:
        name = call.name
        arguments = call.arguments
    if not isinstance(name, str) or not name:
        raise RenderError(f"a call needs a name, found {name!r}")
    if not isinstance(arguments, dict):
        raise RenderError(
            f"the arguments of {name} must be an object, found {type(arguments).__name__}"
        )
    if levels(arguments) > DEEPEST:
        raise RenderError(f"the arguments of {name} are nested deeper than {DEEPEST} levels")
    try:
        json.dumps(arguments, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise RenderError(f"the arguments of {name} are not JSON: {error}") from error
    return name, arguments


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three different values."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    return type(left) is type(right) and bool(left == right)
