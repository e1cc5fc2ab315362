"""Formats that are declared by how they look: the text of a call, with placeholders.

    seed_oss = Declared("seed_oss", call="<function={name}>\n{arguments}</function>",
                        argument="<parameter={key}>{value}</parameter>\n",
                        section=("<seed:tool_call>\n", "\n</seed:tool_call>"))

The placeholders decide how it is parsed: ``{object}`` is a JSON object with name and arguments,
``{name}`` and ``{arguments}`` are a name and JSON arguments, and with an ``argument`` of its own
each value is raw text between tags. ``read_formats`` reads the same from YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from sfusion_tools.errors import FormatError, near
from sfusion_tools.marked_yaml import read_marked

from .argumenttext import ArgumentTextFormat, SectionParser
from .braces import BraceFormat, BraceParser
from .callobject import SIBLINGS, ListParser, ObjectFormat, TaggedParser
from .format import Format
from .pythonic import PythonFormat, PythonicParser
from .streamparser import StreamParser
from .tags import PairParser, TagFormat, TagParser, Tags

_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class _Parts:
    """What a format is made of."""

    base: type[Format]
    parser: type[StreamParser]
    reading: dict[str, Any]
    """Attributes of the parser."""
    writing: dict[str, Any]
    """Attributes of the format."""


@dataclass(frozen=True)
class Declared:
    """How a format looks."""

    name: str
    call: str
    """One call: with ``{object}``, or with ``{name}`` and ``{arguments}``.

    ``{name}({arguments})`` is a call in Python.
    """
    argument: str = ""
    """One argument with ``{key}`` and ``{value}``.

    There may also be ``{type}``, or ``{string}``, which is true or false.
    """
    section: tuple[str, str] = ("", "")
    """The text before and after the calls of a turn, or of each call if ``each``."""
    between: str = "\n"
    each: bool = False
    keys: tuple[str, str, str] = ("name", "arguments", "id")
    """The keys of an object for name, arguments and id.

    The first is empty if the name itself is the only key.
    """
    openers: tuple[str, ...] = ()
    """Other spellings of the opening marker, which are read as well."""
    around: tuple[str, str] = ("", "")
    """What else stands before and after each call of a section."""
    empty: bool = True
    """A call without arguments needs no line break after its name."""
    quote: str = ""
    """The token on either side of a text, in Gemma's formats."""
    ends: tuple[str, ...] = ()
    """Tokens without a meaning of their own, such as the end of a turn."""
    think: tuple[str, ...] = ("<think>", "</think>")
    aliases: tuple[str, ...] = ()
    marks: tuple[re.Pattern[str], ...] | None = None
    """What shows that a text tries to make a call in this format; by default its own markers."""
    models: str = ""
    """A regular expression for the ids of the models that use it."""
    signs: tuple[str, ...] = ()
    """Texts of which a chat template with this format has all; by default its opening marker."""

    def build(self) -> Format:
        """Return the format; raises FormatError if it is not clear how to read it."""
        parts = self._parts()
        reading = dict(parts.reading)
        silent = tuple(dict.fromkeys((*reading.pop("silent", ()), *self.ends)))
        parser: Any = type(
            f"{self.name} parser",
            (parts.parser,),
            {"silent": silent, "think_marks": self.think, **reading},
        )
        body = {
            "parser": parser,
            "signs": self.signs or parser.openers[:1],
            "name": self.name,
            "aliases": self.aliases,
            "marks": self._own_marks(parser) if self.marks is None else self.marks,
            "models": self.models,
            **parts.writing,
        }
        form: Format = type(self.name, (parts.base,), body)()
        return form

    def _parts(self) -> _Parts:
        """Choose the parser by the placeholders."""
        places = set(_PLACE.findall(self.call))
        if self.quote:
            return self._braces()
        if self.argument:
            return self._tags()
        if "object" in places:
            return self._objects()
        if not places >= {"name", "arguments"}:
            raise FormatError(
                f"its call is {self.call!r}: write it with {{object}}, or with {{name}} "
                f"and {{arguments}}"
            )
        return self._python() if "{name}(" in self.call else self._header()

    def _own_marks(self, parser: type[StreamParser]) -> tuple[re.Pattern[str], ...]:
        """Return a pattern of the markers that belong to calls, without single brackets."""
        markers = [mark for mark in (*parser.openers, *parser.silent) if mark not in self.ends]
        own = [mark for mark in markers if len(mark) > 2]
        return (re.compile("|".join(map(re.escape, own)), re.IGNORECASE),)

    def _objects(self) -> _Parts:
        """Return the parts of a format in which a call is a JSON object."""
        before, after = self.call.split("{object}")
        begin, end = self.section
        writing: dict[str, Any] = {"tag": (before, after), "section": (begin, self.between, end)}
        if begin.rstrip().endswith("["):
            reading = self._list_reading()
            return _Parts(ObjectFormat, ListParser, reading, {**writing, "closing": "]"})

        opener = before.strip()
        close = after.strip()
        if not opener or not close:
            raise FormatError(
                "there must be a marker before and after {object}, or a section that is a list"
            )
        reading = {"openers": (opener, *self.openers), "close": close, "keys": self.keys}
        return _Parts(ObjectFormat, TaggedParser, reading, {**writing, "closing": close})

    def _list_reading(self) -> dict[str, Any]:
        """Return the attributes of a parser for a list of objects."""
        begin, end = self.section
        opener = begin.rstrip()[:-1].strip()
        if opener.isidentifier():
            # The bracket belongs to the marker: a word alone may be prose.
            opener += "["
        openers = (opener, *self.openers) if opener else self.openers
        name_key, _, id_key = self.keys
        unusual = [key for key in (name_key, id_key) if key not in ("name", "id", "")]
        return {
            "openers": openers,
            "close": end.strip().removeprefix("]").strip(),
            "keys": self.keys,
            "siblings": (*SIBLINGS, *(f'{{"{key}"' for key in unusual)),
        }

    def _header(self) -> _Parts:
        """Return the parts of a format with a name before JSON arguments."""
        head, end = self.call.split("{arguments}")
        begin, *middle, separator = re.split(r"(\{\w+\})", head)
        begin = begin.strip()
        separator = separator.strip()
        end = end.strip()
        if not begin or not separator or not end:
            raise FormatError(
                "there must be markers before {name}, before {arguments} and after {arguments}"
            )
        pattern = "".join(
            f"(?P<{part[1:-1]}>.*?)" if _PLACE.fullmatch(part) else re.escape(part)
            for part in middle
        )
        opening, close = (mark.strip() for mark in self.section)
        reading = {
            "section": (opening, close),
            "tags": (begin, end),
            "separator": separator,
            "head": re.compile(pattern, re.DOTALL),
            "silent": (close,) if close else (),
        }
        writing = {"call": self.call, "section": (opening, self.between, close), "closing": end}
        return _Parts(ArgumentTextFormat, SectionParser, reading, writing)

    def _tags(self) -> _Parts:
        """Return the parts of a format with raw values between tags."""
        begin, end = (mark.strip() for mark in self.section)
        head, call_end = self.call.split("{arguments}")
        call, name_end = (part.strip() for part in head.split("{name}"))
        if _PLACE.findall(self.argument)[:1] != ["key"] or "{value}" not in self.argument:
            raise FormatError(
                f"its argument is {self.argument!r}: write it with {{key}} and {{value}}"
            )
        before_value, closing = self.argument.split("{value}")
        argument, key_end = (part.strip() for part in before_value.split("{key}"))
        before_call, after_call = self.around
        call = call.removeprefix(before_call)
        call_end = call_end.strip().removesuffix(after_call).strip()

        if re.search(r">\s*<", key_end):
            # The value has a tag of its own.
            tags = Tags(
                open=call,
                close=call_end,
                call=name_end,
                call_end=call_end,
                argument=argument,
                key_end=re.sub(r"\s+", "", key_end),
                closing=closing.strip(),
                empty=self.empty,
            )
            silent = (begin, end) if begin else ()
            return self._tag_parts(PairParser, tags, silent, tags.closing)
        tags = Tags(
            open=begin,
            close=end,
            call=call,
            call_end=call_end,
            argument=argument,
            key_end=key_end,
            closing=closing.strip(),
            tag_end=key_end[key_end.rfind("<") :] if key_end.endswith("|>") else ">",
            many=not self.each,
            padded=before_value.endswith("\n"),
            hint=self._hint(),
            around=self.around,
        )
        return self._tag_parts(TagParser, tags, (), tags.close)

    def _hint(self) -> str:
        """Return the name of the attribute that tells the type of a value, if there is one."""
        for part in ("string", "type"):
            if f"{{{part}}}" in self.argument:
                return part
        return ""

    def _tag_parts(
        self, parser: type[StreamParser], tags: Tags, silent: tuple[str, ...], closing: str
    ) -> _Parts:
        reading = {"openers": (tags.open, *self.openers), "tags": tags, "silent": silent}
        opening, close = self.section
        writing: dict[str, Any] = {"argument": self.argument, "closing": closing}
        if self.each:
            writing["call"] = f"{opening}{self.call}{close}"
            writing["section"] = ("", self.between, "")
        else:
            writing["call"] = self.call
            writing["section"] = (opening, self.between, close)
        return _Parts(TagFormat, parser, reading, writing)

    def _python(self) -> _Parts:
        """Return the parts of a format in which calls are Python, in brackets or between tags."""
        begin, end = self.section
        if begin.endswith("["):
            opener = "["
            close = "]"
            silent = tuple(filter(None, (begin[:-1].strip(), end[1:].strip())))
            after = silent[-1] if silent else ""
        else:
            opener = begin.strip()
            close = end.strip()
            silent = ()
            after = close
        reading = {"openers": (opener,), "close": close, "silent": silent, "after": after}
        writing = {"section": (begin, self.between, end), "closing": close}
        return _Parts(PythonFormat, PythonicParser, reading, writing)

    def _braces(self) -> _Parts:
        """Return the parts of a format of Gemma."""
        opener = self.call.partition("call:")[0]
        close = self.call.rpartition("}")[2]
        reading = {"openers": (opener,), "close": close, "quote": self.quote}
        return _Parts(BraceFormat, BraceParser, reading, {"call": self.call, "closing": close})


_FROM_YAML = [item.name for item in fields(Declared) if item.name not in ("name", "marks")]
_EXPECTED = {tuple: "a list of texts", bool: "true or false", str: "a text"}


def read_formats(path: Path) -> Iterator[Format]:
    """Read the formats that a YAML file declares: a mapping of names to what ``Declared`` has."""
    marked = read_marked(path)
    if not isinstance(marked.data, dict):
        raise FormatError(f"{path}: expected a mapping of names to formats, each with a call")
    for name, given in marked.data.items():
        place = marked.place((name,))
        if not isinstance(given, dict) or not isinstance(given.get("call"), str):
            raise FormatError(
                f"{place}: the format {name} needs a call, such as "
                f'"<call:{{name}}>{{arguments}}</call>"'
            )
        settled: dict[str, Any] = {}
        for key, value in given.items():
            problem = _problem(key, value)
            if problem:
                raise FormatError(f"{marked.place((name, key))}: {problem}")
            settled[key] = tuple(value) if isinstance(value, list) else value
        try:
            yield Declared(str(name), **settled).build()
        except (FormatError, ValueError, re.error) as error:
            raise FormatError(f"{place}: {error}") from error


def _problem(key: Any, value: Any) -> str | None:
    """Return what is wrong with one field of a format in a YAML file."""
    if key not in _FROM_YAML:
        return near(str(key), _FROM_YAML)
    wanted = type(getattr(Declared, key, ""))
    if isinstance(value, list if wanted is tuple else wanted):
        return None
    return f"{key} is {value!r}; expected {_EXPECTED[wanted]}"
