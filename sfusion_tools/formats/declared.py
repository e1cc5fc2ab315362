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

_Parts = tuple[type[Format], type[StreamParser], dict[str, Any], dict[str, Any]]
_PLACE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Declared:
    """How a format looks."""

    name: str
    call: str
    """One call, with ``{object}``, ``{name}`` and ``{arguments}``, or ``{name}({arguments})`` as in
    Python."""
    argument: str = ""
    """One argument with ``{key}`` and ``{value}``, perhaps with ``{type}`` or ``{string}`` (true or
    false)."""
    section: tuple[str, str] = ("", "")
    """The text before and after the calls of a turn, or of each call if ``each``."""
    between: str = "\n"
    each: bool = False
    keys: tuple[str, str, str] = ("name", "arguments", "id")
    """The keys of an object for name, arguments and id; the first is empty if the name is the only
    key."""
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
        places = set(_PLACE.findall(self.call))
        if self.quote:
            base, parser, reading, writing = self._braces()
        elif self.argument:
            base, parser, reading, writing = self._tags()
        elif "object" in places:
            base, parser, reading, writing = self._objects()
        elif not places >= {"name", "arguments"}:
            raise FormatError(
                f"its call is {self.call!r}: write it with {{object}}, or with {{name}} "
                f"and {{arguments}}"
            )
        else:
            base, parser, reading, writing = (
                self._python() if "{name}(" in self.call else self._header()
            )
        silent = tuple(dict.fromkeys((*reading.pop("silent", ()), *self.ends)))
        made: Any = type(
            f"{self.name} parser",
            (parser,),
            {"silent": silent, "think_marks": self.think, **reading},
        )
        marks = self.marks
        if marks is None:
            own = [
                mark for mark in (*made.openers, *silent) if mark not in self.ends and len(mark) > 2
            ]
            marks = (re.compile("|".join(map(re.escape, own)), re.IGNORECASE),)
        shared = {"name": self.name, "aliases": self.aliases, "marks": marks, "models": self.models}
        body = {"parser": made, "signs": self.signs or made.openers[:1], **shared, **writing}
        form: Format = type(self.name, (base,), body)()
        return form

    def _objects(self) -> _Parts:
        before, after = self.call.split("{object}")
        begin, end = self.section
        writing = {"tag": (before, after), "section": (begin, self.between, end)}
        if begin.rstrip().endswith("["):
            opener = begin.rstrip()[:-1].strip()
            keys = (
                f'{{"{key}"'
                for key in (self.keys[0], self.keys[2])
                if key not in ("name", "id", "")
            )
            reading = {
                "openers": (
                    *((f"{opener}[" if opener.isidentifier() else opener,) if opener else ()),
                    *self.openers,
                ),
                "close": end.strip().removeprefix("]").strip(),
                "keys": self.keys,
                "siblings": (*SIBLINGS, *keys),
            }
            return ObjectFormat, ListParser, reading, writing | {"closing": "]"}
        opener, close = before.strip(), after.strip()
        if not opener or not close:
            raise FormatError(
                "there must be a marker before and after {object}, or a section that is a list"
            )
        reading = {"openers": (opener, *self.openers), "close": close, "keys": self.keys}
        return ObjectFormat, TaggedParser, reading, writing | {"closing": close}

    def _header(self) -> _Parts:
        head, end = self.call.split("{arguments}")
        begin, *middle, separator = re.split(r"(\{\w+\})", head)
        begin, separator, end = begin.strip(), separator.strip(), end.strip()
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
            "silent": tuple(filter(None, (close,))),
        }
        writing = {"call": self.call, "section": (opening, self.between, close), "closing": end}
        return ArgumentTextFormat, SectionParser, reading, writing

    def _tags(self) -> _Parts:
        begin, end = (mark.strip() for mark in self.section)
        head, call_end = self.call.split("{arguments}")
        call, name_end = (part.strip() for part in head.split("{name}"))
        if not _PLACE.findall(self.argument)[:1] == ["key"] or "{value}" not in self.argument:
            raise FormatError(
                f"its argument is {self.argument!r}: write it with {{key}} and {{value}}"
            )
        before_value, closing = self.argument.split("{value}")
        argument, key_end = (part.strip() for part in before_value.split("{key}"))
        call, call_end = (
            call.removeprefix(self.around[0]),
            call_end.strip().removesuffix(self.around[1]).strip(),
        )
        pairs = bool(re.search(r">\s*<", key_end))
        if pairs:
            key_end = re.sub(r"\s+", "", key_end)
            tags = Tags(
                call,
                call_end,
                name_end,
                call_end,
                argument,
                key_end,
                closing.strip(),
                empty=self.empty,
            )
        else:
            tags = Tags(
                *(begin, end, call, call_end, argument, key_end, closing.strip()),
                tag_end=key_end[key_end.rfind("<") :] if key_end.endswith("|>") else ">",
                many=not self.each,
                padded=before_value.endswith("\n"),
                hint=next(
                    (part for part in ("string", "type") if f"{{{part}}}" in self.argument), ""
                ),
                around=self.around,
            )
        reading = {
            "openers": (tags.open, *self.openers),
            "tags": tags,
            "silent": (begin, end) if pairs and begin else (),
        }
        opening, close = self.section
        writing = {
            "call": f"{opening}{self.call}{close}" if self.each else self.call,
            "argument": self.argument,
            "section": ("", self.between, "") if self.each else (opening, self.between, close),
            "closing": tags.closing if pairs else tags.close,
        }
        return TagFormat, PairParser if pairs else TagParser, reading, writing

    def _python(self) -> _Parts:
        begin, end = self.section
        bracket = begin.endswith("[")
        marks = tuple(filter(None, (begin[:-1].strip(), end[1:].strip()))) if bracket else ()
        close = "]" if bracket else end.strip()
        opener = "[" if bracket else begin.strip()
        reading = {
            "openers": (opener,),
            "close": close,
            "silent": marks,
            "after": marks[-1] if marks else "",
        }
        if not bracket:
            reading["after"] = close
        return (
            PythonFormat,
            PythonicParser,
            reading,
            {"section": (begin, self.between, end), "closing": close},
        )

    def _braces(self) -> _Parts:
        opener, close = self.call.partition("call:")[0], self.call.rpartition("}")[2]
        reading = {"openers": (opener,), "close": close, "quote": self.quote}
        return BraceFormat, BraceParser, reading, {"call": self.call, "closing": close}


def read_formats(path: Path) -> Iterator[Format]:
    """Read the formats that a YAML file declares: a mapping of names to what ``Declared`` has."""
    marked = read_marked(path)
    known = [field.name for field in fields(Declared) if field.name not in ("name", "marks")]
    if not isinstance(marked.data, dict):
        raise FormatError(f"{path}: expected a mapping of names to formats, each with a call")
    for name, given in marked.data.items():
        place = marked.place((name,))
        if not isinstance(given, dict) or not isinstance(given.get("call"), str):
            raise FormatError(
                f"{place}: the format {name} needs a call, such as "
                f'"<call:{{name}}>{{arguments}}</call>"'
            )
        for key, value in given.items():
            if key not in known:
                raise FormatError(f"{marked.place((name, key))}: {near(str(key), known)}")
            wanted = type(getattr(Declared, key, ""))
            if not isinstance(value, list if wanted is tuple else wanted):
                what = (
                    "a list of texts"
                    if wanted is tuple
                    else "true or false"
                    if wanted is bool
                    else "a text"
                )
                raise FormatError(
                    f"{marked.place((name, key))}: {key} is {value!r}; expected {what}"
                )
        settled: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in given.items()
        }
        try:
            yield Declared(str(name), **settled).build()
        except (FormatError, ValueError, re.error) as error:
            raise FormatError(f"{place}: {error}") from error
