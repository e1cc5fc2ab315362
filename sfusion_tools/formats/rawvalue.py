"""Calls with values in raw text, which are read according to the tool's schema.

A parameter declared as a string is its text, whatever the text looks like. Any other type is JSON (or its Python
spelling). Without a declaration, text that is valid JSON is that value and any other text is a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from .format import Format
from .jsontext import ENOUGH, TOO_DEEP, Flaw, Loaded, TooDeepError, dump, nesting
from .literal import NOT_PYTHON, decode_json, decode_python
from .streamparser import StreamParser
from .text_reader import Markers, Scan
from .toolbox import Toolbox

__all__ = ["NAME", "PARTS_MARK", "RawTextFormat", "RawTextParser", "read_value"]

NAME = re.compile(r"[\w.:/-]+")
PARTS_MARK = re.compile(r"<function[= ]|</?arg_(?:key|value)>", re.IGNORECASE)
"""The tags inside a call, of all families together: models mix them up."""


class RawTextParser(StreamParser):
    """A parser for formats with raw values inside an outer pair of tags."""

    closing: ClassVar[str]
    """The tag that ends a call."""
    edges: ClassVar[Markers]
    """Where the rest of a broken call ends; includes the closing tag."""

    def give_up(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[None]:
        """Refuse the call and skip the rest of it."""
        edge = yield from self.reader.before(self.edges, raw.append)
        if edge == self.closing:
            raw.append(self.reader.take(len(self.closing)))
        self.refuse(flaw, position=start, raw="".join(raw), name=name)

    def add_argument(self, arguments: dict[str, Any], name: str, key: str, text: str, what: str) -> Flaw | None:
        """Add a value to the arguments of a call, and return what is wrong with it, if anything."""
        read = read_value(text, self.tools.types(name, key), key)
        flaw = Flaw("duplicate_key", f"it has the {what} {key} twice") if key in arguments else None
        if isinstance(read, Flaw):
            return flaw or read
        arguments[key] = read.value
        return flaw


class RawTextFormat(Format):
    """A format in which the values of a call are raw text."""

    argument: ClassVar[tuple[str, str, str]]
    """The text before each key, between key and value, and after the value."""

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
    """Read ``text`` as a value of one of the declared types."""
    if types == {"string"}:
        return Loaded(text)
    try:
        known, value = decode_json(text.strip())
    except TooDeepError:
        return TOO_DEEP
    if known and (not types or _fits(value, types)):
        return Loaded(value)
    flaw = NOT_PYTHON
    if types:
        value = decode_python(text)
        if isinstance(value, Flaw):
            flaw = value
        elif _fits(value, types):
            return Loaded(value)
    if not types or "string" in types:
        return Loaded(text)
    if flaw is not NOT_PYTHON:
        return Flaw(flaw.kind, f"in its parameter {parameter}, {flaw.message}")
    if nesting(text) > ENOUGH:
        return TOO_DEEP
    shown = json.dumps(text[:40], ensure_ascii=False)
    return Flaw("bad_value", f"its parameter {parameter} must be {' or '.join(sorted(types))}, found {shown}")


def write_value(value: Any, types: frozenset[str]) -> str:
    """Return the text that ``read_value`` reads as ``value``, if there is one."""
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
