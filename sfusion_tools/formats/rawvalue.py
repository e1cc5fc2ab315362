"""Calls whose values are raw text: what a value means follows from the tool's schema.

A parameter that is declared as a string is its text, whatever the text looks like. Anything else is JSON (or the
Python spelling of it). Without a declaration, text that is JSON is a value and any other text is a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from .format import Format
from .jsontext import Flaw, Loaded, dump
from .literal import decode_json, decode_python
from .streamparser import StreamParser
from .text_reader import Markers, Scan
from .toolbox import Toolbox

__all__ = ["NAME", "PARTS_MARK", "RawTextFormat", "RawTextParser", "read_value"]

NAME = re.compile(r"[\w.:/-]+")
PARTS_MARK = re.compile(r"<function[= ]|</?arg_(?:key|value)>", re.IGNORECASE)
"""The marks of the parts of a call, of all families together: models mix them up."""


class RawTextParser(StreamParser):
    """A parser of a format in which calls have raw values inside an outer pair of tags."""

    closing: ClassVar[str]
    """The tag that ends a call."""
    edges: ClassVar[Markers]
    """Where the rest of a broken call ends; the closing tag is among them."""

    def give_up(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[None]:
        """Refuse the call and step over the rest of it."""
        edge = yield from self.reader.before(self.edges, raw.append)
        if edge == self.closing:
            raw.append(self.reader.take(len(self.closing)))
        self.refuse(flaw, position=start, raw="".join(raw), name=name)

    def add_argument(self, arguments: dict[str, Any], name: str, key: str, text: str, what: str) -> Flaw | None:
        """Add a value to the arguments of a call of tool ``name``, or return what is wrong with it."""
        read = read_value(text, self.tools.types(name, key), key)
        flaw = Flaw("duplicate_key", f"it has the {what} {key} twice") if key in arguments else None
        if isinstance(read, Flaw):
            return flaw or read
        arguments[key] = read.value
        return flaw


class RawTextFormat(Format):
    """A format in which the values of a call are raw text."""

    argument: ClassVar[tuple[str, str, str]]
    """What is written before each key, between key and value, and behind the value."""

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        for name, _ in calls:
            if not NAME.fullmatch(name):
                raise RenderError(f"{self.name} cannot express the name {name!r}")
        return super().write(calls, tools, variant)

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        before, between, after = self.argument
        return "".join(
            f"{before}{key}{between}{write_value(value, tools.types(name, key))}{after}"
            for key, value in arguments.items()
        )

    def write_section(self, calls: Sequence[str]) -> str:
        return "\n".join(calls)


def read_value(text: str, types: frozenset[str], parameter: str) -> Loaded | Flaw:
    """The value that ``text`` has for a parameter of these declared types."""
    if types == {"string"}:
        return Loaded(text)
    known, value = decode_json(text.strip())
    if known and (not types or _fits(value, types)):
        return Loaded(value)
    if types:
        known, value = decode_python(text)
        if known and _fits(value, types):
            return Loaded(value)
    if not types or "string" in types:
        return Loaded(text)
    shown = json.dumps(text[:40], ensure_ascii=False)
    return Flaw("bad_value", f"its parameter {parameter} has to be {' or '.join(sorted(types))}, and {shown} is not")


def write_value(value: Any, types: frozenset[str]) -> str:
    """The text that ``read_value`` reads as ``value``, as far as there is one."""
    if isinstance(value, str):
        read = read_value(value, types, "")
        if isinstance(read, Loaded) and read.value == value:
            return value
    return dump(value)


def _fits(value: Any, types: frozenset[str]) -> bool:
    match value:
        case None:
            return True
        case bool():
            return "boolean" in types
        case int():
            return bool(types & {"integer", "number"})
        case float():
            return "number" in types
        case str():
            return "string" in types
        case list():
            return "array" in types
        case _:
            return "object" in types
