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

from sfusion_tools.errors import FormatError, RenderError, near
from sfusion_tools.marked_yaml import read_marked

from .argumenttext import ArgumentTextFormat, MessageParser, SectionParser
from .braces import BraceFormat, BraceParser
from .calllist import ListParser
from .callobject import SIBLINGS, ObjectFormat, TaggedParser
from .format import Format
from .pythonic import PythonFormat, PythonicParser
from .streamparser import Header, StreamParser
from .tagpairs import PairParser
from .tags import TagFormat, TagParser, Tags
from .text_reader import Markers
from .toolbox import Toolbox

_PLACE = re.compile(r"\{(\w+)\}")
_LETTER = re.compile(r"\w")


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

    ``{name}({arguments})`` is a call in Python. With nothing after ``{object}``, a call ends with
    its object.
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
    cdata: bool = False
    """A value with ``<``, ``&`` or a line break is written in a CDATA block."""
    quote: str = ""
    """The token on either side of a text, in Gemma's formats."""
    ends: tuple[str, ...] = ()
    """Tokens without a meaning of their own, such as the end of a turn."""
    think: tuple[str, ...] = ("<think>", "</think>")
    header: tuple[str, ...] = ()
    """What stands before each message of a turn.

    Its start, with which a prompt ends; the text before and after the name of the recipient; and
    the recipient of content, perhaps empty.
    """
    aliases: tuple[str, ...] = ()
    marks: tuple[re.Pattern[str], ...] | None = None
    """What shows that a text tries to make a call in this format; by default its own markers."""
    models: str = ""
    """A regular expression for the ids of the models that use it."""
    signs: tuple[str, ...] = ()
    """Texts of which a chat template with this format has all.

    By default its opening marker, unless that is only a bracket or other punctuation.
    """

    def build(self) -> Format:
        """Return the format; raises FormatError if it is not clear how to read it."""
        self._check_texts()
        parts = self._parts()
        reading = dict(parts.reading)
        writing = dict(parts.writing)
        silent = tuple(dict.fromkeys((*reading.pop("silent", ()), *self.ends)))
        if self.header:
            header = Header(*self.header)
            reading["header"] = header
            if header.start not in reading["openers"]:
                silent = (*silent, header.start)
                writing.update(self._headed(header, writing, reading["openers"]))
        parser: Any = type(
            f"{self.name} parser",
            (parts.parser,),
            {"silent": silent, "think_marks": self.think, **reading},
        )
        body = {
            "parser": parser,
            "signs": self.signs or tuple(filter(_LETTER.search, parser.openers[:1])),
            "name": self.name,
            "aliases": self.aliases,
            "marks": self.marks,
            "models": self.models,
            **writing,
        }
        if self.marks is None:
            ends = (body["closing"], reading.get("close", ""))
            body["marks"] = self._own_marks((*parser.openers, *parser.silent, *ends))
        form: Format = type(self.name, (parts.base,), body)()
        return form

    def _headed(
        self, header: Header, writing: dict[str, Any], openers: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return how a call is written with the header of its message before it."""
        head = f"{header.start}{header.before}{{name}}"
        if header.after not in openers:
            head += header.after
        if "tag" in writing:
            before, after = writing["tag"]
            return {"tag": (head + before, after)}
        return {"call": head + writing["call"]}

    def _check_texts(self) -> None:
        """Raise FormatError for a list with too few or too many texts, or for an empty marker."""
        for field, meaning in _LENGTHS.items():
            given = getattr(self, field)
            size = meaning.count(",") + 1
            if len(given) != size and (given or field not in ("think", "header")):
                raise FormatError(f"{field} is {list(given)}; expected {size} texts: {meaning}")
        for field in ("openers", "ends", "think", "aliases", "signs"):
            if "" in getattr(self, field):
                raise FormatError(f"{field} has an empty text, which would be found everywhere")
        if self.header and not (self.header[0] and self.header[2]):
            raise FormatError("header has an empty start, or nothing after its recipient")

    def _parts(self) -> _Parts:
        """Choose the parser by the placeholders."""
        places = set(_PLACE.findall(self.call))
        twice = [place for place in places if self.call.count(f"{{{place}}}") > 1]
        if twice:
            raise FormatError(f"its call is {self.call!r}: write {{{twice[0]}}} once")
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
        if "{name}(" in self.call:
            return self._python()
        return self._messages() if self.header else self._header()

    def _own_marks(self, markers: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
        """Return a pattern of the markers that belong to calls, without those that may be prose."""
        calls = dict.fromkeys(mark for mark in markers if mark not in self.ends)
        own = [mark for mark in calls if len(mark) > 2 and _LETTER.search(mark)]
        return (re.compile("|".join(map(re.escape, own)), re.IGNORECASE),) if own else ()

    def _objects(self) -> _Parts:
        """Return the parts of a format in which a call is a JSON object."""
        before, after = self.call.split("{object}")
        begin, end = self.section
        writing: dict[str, Any] = {"tag": (before, after), "section": (begin, self.between, end)}
        if begin.rstrip().endswith("["):
            reading = self._list_reading()
            writing.update(section=(begin, self._comma(), end), closing="]")
            return _Parts(ObjectFormat, ListParser, reading, writing)

        opener = before.strip()
        close = after.strip()
        if not opener:
            raise FormatError("there must be a marker before {object}, or a section that is a list")
        reading = {"openers": (opener, *self.openers), "close": close, "keys": self.keys}
        return _Parts(ObjectFormat, TaggedParser, reading, {**writing, "closing": close or opener})

    def _comma(self) -> str:
        """Return what is between the elements of a list, which needs a comma."""
        return self.between if "," in self.between else ", "

    def _list_reading(self) -> dict[str, Any]:
        """Return the attributes of a parser for a list of objects."""
        begin, end = self.section
        opener = begin.rstrip()[:-1].strip()
        if opener.isidentifier():
            # The bracket belongs to the marker: a word alone may be prose.
            opener += "["
        openers = (opener, *self.openers) if opener else self.openers
        if not openers:
            raise FormatError(
                f"its section begins with {begin!r}: write a marker before the [, or give openers"
            )
        name_key, _, id_key = self.keys
        unusual = [key for key in (name_key, id_key) if key not in ("name", "id", "")]
        return {
            "openers": openers,
            "close": end.strip().removeprefix("]").strip(),
            "keys": self.keys,
            "siblings": (*SIBLINGS, *(f'{{"{key}"' for key in unusual)),
        }

    def _messages(self) -> _Parts:
        """Return the parts of a format in which a call is a message of its own."""
        start, before, after, _ = self.header
        if self.call != f"{start}{before}{{name}}{after}{{arguments}}":
            raise FormatError(
                f"its call is {self.call!r}: write it with the header, {{name}} and {{arguments}}"
            )
        reading = {"openers": (start,), "ends": (), "edges": Markers((start, *self.ends))}
        writing = {"call": self.call, "section": ("", self.between, ""), "closing": start}
        return _Parts(ArgumentTextFormat, MessageParser, reading, writing)

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
        call, name_end, call_end = _around_places(self.call, "call", "name", "arguments")
        argument, key_end, closing = _around_places(self.argument, "argument", "key", "value")
        before_call, after_call = self.around
        call = call.removeprefix(before_call)
        call_end = call_end.removesuffix(after_call).strip()
        if not call or not call_end or not argument or not key_end or not closing:
            raise FormatError(
                "there must be markers before {name}, after {arguments}, before and after {key}, "
                "and after {value}"
            )

        if re.search(r">\s*<", key_end):
            # The value has a tag of its own.
            tags = Tags(
                open=call,
                close=call_end,
                call=name_end,
                call_end=call_end,
                argument=argument,
                key_end=re.sub(r"\s+", "", key_end),
                closing=closing,
                empty=self.empty,
            )
            silent = (begin, end) if begin else ()
            parts = self._tag_parts(PairParser, tags, silent, tags.closing)
            parts.reading["enclosing"] = (begin, end)
            return parts
        if bool(begin) != bool(end):
            raise FormatError(f"section is {list(self.section)}: write both texts, or neither")
        tags = Tags(
            open=begin or call,
            close=end or call_end,
            call=call,
            call_end=call_end,
            argument=argument,
            key_end=key_end,
            closing=closing,
            tag_end=key_end[key_end.rfind("<") :] if key_end.endswith("|>") else ">",
            many=bool(begin) and not self.each,
            padded=self.argument.partition("{value}")[0].endswith("\n"),
            hint=self._hint(),
            around=self.around,
            cdata=self.cdata,
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
        between = self.between
        if begin.endswith("["):
            between = self._comma()
            opener = "["
            close = "]"
            silent = tuple(filter(None, (begin[:-1].strip(), end[1:].strip())))
            after = silent[-1] if silent else ""
        else:
            opener = begin.strip()
            close = end.strip()
            silent = ()
            after = close
        if not opener or not close:
            raise FormatError("there must be a section around calls in Python, such as [ and ]")
        reading = {"openers": (opener,), "close": close, "silent": silent, "after": after}
        if len(silent) > 1:
            reading["enclosing"] = silent
        writing = {"section": (begin, between, end), "closing": close}
        return _Parts(PythonFormat, PythonicParser, reading, writing)

    def _braces(self) -> _Parts:
        """Return the parts of a format of Gemma."""
        opener, _, rest = self.call.partition("call:{name}{arguments}")
        close = rest.strip()
        if not opener.strip() or not close:
            raise FormatError(
                f"its call is {self.call!r}: a format with a quote is written with "
                "call:{name}{arguments} between two markers"
            )
        reading = {"openers": (opener,), "close": close, "quote": self.quote}
        return _Parts(BraceFormat, BraceParser, reading, {"call": self.call, "closing": close})


def _around_places(text: str, what: str, first: str, second: str) -> tuple[str, str, str]:
    """Return what is before, between and after two placeholders, without the white space there."""
    found = re.fullmatch(rf"(?s)(.*?)\{{{first}\}}(.*?)\{{{second}\}}(.*)", text)
    if found is None or text.count(f"{{{first}}}") + text.count(f"{{{second}}}") > 2:
        raise FormatError(
            f"its {what} is {text!r}: write it with {{{first}}} and {{{second}}}, each once"
        )
    before, between, after = (part.strip() for part in found.groups())
    return before, between, after


_LENGTHS = {
    "section": "[before, after] the calls",
    "around": "[before, after] each call",
    "keys": "the keys of [name, arguments, id]",
    "think": "the [begin, end] of thinking",
    "header": "[start, before, after] the recipient, [reader]",
}
"""What the lists of a fixed length have; ``think`` and ``header`` may also be empty."""
_PROBE: tuple[str, dict[str, Any]] = ("TOOL", {"KEY": "VALUE"})
"""A call that every format that is any use can write and read back, once and twice."""


def check(form: Format) -> None:
    """Raise FormatError if a format does not read back what it writes."""
    name, arguments = _PROBE
    for times in (1, 2):
        try:
            form.render([{"name": name, "arguments": arguments}] * times)
        except RenderError as error:
            text = form.write([_PROBE] * times, Toolbox(), form.variants[0])
            raise FormatError(f"what it writes is not read back: {text!r}: {error}") from error


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
            form = Declared(str(name), **settled).build()
            check(form)
            yield form
        except (FormatError, ValueError, re.error) as error:
            raise FormatError(f"{place}: {error}") from error


def _problem(key: Any, value: Any) -> str | None:
    """Return what is wrong with one field of a format in a YAML file."""
    if key not in _FROM_YAML:
        return near(str(key), _FROM_YAML)
    if key == "models" and isinstance(value, str):
        return _problem_of_pattern(value)
    wanted = type(getattr(Declared, key, ""))
    if wanted is tuple and isinstance(value, list):
        if all(isinstance(text, str) for text in value):
            return None
    elif isinstance(value, wanted):
        return None
    return f"{key} is {value!r}; expected {_EXPECTED[wanted]}"


def _problem_of_pattern(pattern: str) -> str | None:
    """Return why ``models`` cannot be searched for."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"models is {pattern!r}; expected a regular expression ({error})"
    return None
