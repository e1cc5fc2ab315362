"""Calls written as tags with raw values between them.

    <function=NAME><parameter=KEY>VALUE</parameter></function>

A format declares what its tags are. In some the key and the value have tags of their own, see
``tagpairs``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from html import unescape
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from .format import Format
from .jsontext import NOT_BEGUN, Flaw, Loaded, dump
from .rawvalue import (
    NAME,
    TagSpec,
    TagValue,
    begins_like,
    misspelt,
    read_tag_value,
    read_value,
    write_value,
)
from .streamparser import StreamParser
from .text_reader import Markers, Scan
from .toolbox import Toolbox

GAP = re.compile(r"(?:\s|\\n)+")
CDATA = "<![CDATA["
CDATA_END = "]]>"
_NEEDS_CDATA = re.compile(r"[<&\n]|\]\]>\s*\Z")
"""What is written in a CDATA block; MiniCPM5's template does so for the first three."""
_ESCAPE = re.compile(r"&(?:lt|gt|amp|quot|apos);")
_NOT_XML = re.compile(r"[<&]")
_JSON_TYPES = frozenset({"boolean", "integer", "number", "array", "object"})
_KINDS = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


@dataclass(frozen=True)
class Tags:
    """The tags of a format, without the white space around them."""

    open: str
    """Before a call, or before all calls of a turn if ``many``; ``call`` if there is neither."""
    close: str
    call: str
    """Up to the name of the tool; in a ``PairParser`` what may follow the name."""
    call_end: str
    argument: str
    """Up to the name of an argument."""
    key_end: str
    """Between the name of an argument and its value."""
    closing: str
    """After the value."""
    tag_end: str = ">"
    many: bool = False
    padded: bool = False
    """There are line breaks around each value, which are not part of it."""
    hint: str = ""
    """The attribute that tells whether a value is a string: its type, or true and false."""
    around: tuple[str, str] = ("", "")
    """What else is written before and after each call of a section."""
    empty: bool = True
    """A call may have no arguments and no line break after its name."""
    cdata: bool = False
    """A value may be in a CDATA block."""

    @cached_property
    def edges(self) -> Markers:
        """What ends a call that is broken."""
        if self.many:
            return Markers((self.close, self.open, self.call))
        return Markers((self.close, self.open))

    @cached_property
    def parts(self) -> Markers:
        """All tags of the format."""
        return Markers(
            (self.close, self.open, self.call, self.call_end, self.argument, self.closing)
        )

    @cached_property
    def bodies(self) -> Markers:
        """What may follow a call, or the opening of a section."""
        return Markers((self.close, self.open, self.call))

    @cached_property
    def header(self) -> Markers:
        """What ends the rest of a tag, well or not."""
        if not self.tag_end.startswith("<"):
            return Markers((self.tag_end, "\n", "<"))
        return Markers((self.tag_end, "\n", _first_tag(self.argument), _first_tag(self.closing)))

    @cached_property
    def value(self) -> TagSpec:
        """How a value ends in a ``TagParser``."""
        implicit = None
        if self.padded:
            opening = rf"{re.escape(self.argument)}[^<>\n]+{self.tag_end}"
            implicit = re.compile(rf"\n(?={opening}|{self.call_end}\s*(?:{self.close}|\Z))")
        barriers = (self.open, self.call) if self.many else (self.open,)
        return TagSpec(
            opening=self.argument,
            closing=self.closing,
            followers=(self.argument, self.call_end),
            barriers=barriers,
            implicit=implicit,
        )

    @cached_property
    def block(self) -> TagSpec:
        """How a value in a CDATA block ends."""
        return TagSpec(
            opening=CDATA,
            closing=CDATA_END + self.closing,
            followers=(self.argument, self.call_end),
            barriers=(self.open,),
        )

    @cached_property
    def heads(self) -> Markers:
        """What may follow a name or a value in a ``PairParser``."""
        return Markers((self.argument, self.value_open, self.call_end, self.open))

    @cached_property
    def keys(self) -> Markers:
        """What ends a key, well or not."""
        return Markers((self.key_close, self.argument, self.value_open, self.call_end, self.open))

    @cached_property
    def pair_value(self) -> TagSpec:
        """How a value ends in a ``PairParser``."""
        return TagSpec(
            opening=self.value_open,
            closing=self.closing,
            followers=(self.argument, self.call_end),
            barriers=(self.open, self.argument),
            gap=GAP,
        )

    @property
    def key_close(self) -> str:
        return self.key_end[: self.key_end.index(">") + 1]

    @property
    def value_open(self) -> str:
        return self.key_end[self.key_end.rindex("<") :]


def _first_tag(mark: str) -> str:
    """Return a marker up to its first ``>``."""
    head, end, _ = mark.partition(">")
    return head + end


@dataclass(slots=True)
class RawCall:
    """A call as far as it was read."""

    name: str
    start: int
    raw: list[str]
    arguments: dict[str, Any] = field(default_factory=dict)
    repaired: list[Flaw] = field(default_factory=list)
    flaw: Flaw | None = None
    """The first thing for which it must be refused."""

    def fail(self, flaw: Flaw | None) -> Flaw | None:
        """Note a flaw and return the first one."""
        self.flaw = self.flaw or flaw
        return self.flaw


class RawTextParser(StreamParser):
    """A parser for formats with raw values between tags."""

    tags: ClassVar[Tags]

    def give_up(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[None]:
        """Refuse the call and skip the rest of it."""
        edge = yield from self.reader.before(self.tags.edges, raw.append)
        if edge == self.tags.close and not self.tags.many:
            raw.append(self.reader.take(len(edge)))
        self.refuse(flaw, position=start, raw="".join(raw), name=name)

    def report_raw(self, call: RawCall) -> None:
        """Report a call that was read to its end, or refuse it for its flaw."""
        self.call(
            call.name,
            call.flaw or Loaded(call.arguments),
            position=call.start,
            raw="".join(call.raw),
            repaired=call.repaired,
        )

    def add_argument(
        self, call: RawCall, key: str, text: str, *, what: str, hint: str = ""
    ) -> None:
        """Add a value to the arguments of a call, and note what is wrong with it, if anything."""
        read = self._read(call.name, key, text, hint)
        if key in call.arguments:
            call.fail(Flaw("duplicate_key", f"it has the {what} {key} twice"))
        if isinstance(read, Flaw):
            call.fail(read)
        else:
            call.arguments[key] = read.value

    def _read(self, name: str, key: str, text: str, hint: str) -> Loaded | Flaw:
        """Read a value; the hint at its type is more important than the tool's schema."""
        types = self.tools.types(name, key)
        if not hint:
            return read_value(text, types, key)
        if hint in ("true", "string"):
            return Loaded(text)
        if hint not in ("false", "null", *_JSON_TYPES):
            return Flaw("bad_value", f'its parameter {key} has {self.tags.hint}="{hint[:40]}"')
        return read_value(text, types - {"string"} or _JSON_TYPES, key)


class TagParser(RawTextParser):
    """Reads functions one by one; types come from the schema, or from an attribute of the tag."""

    _ended_well = True
    """The last function was not broken."""

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        tags = self.tags
        start = reader.offset - len(marker)
        if tags.open == tags.call:
            yield from self._function(start, "")
            return
        functions = 0
        self._ended_well = True
        while True:
            text, edge = yield from reader.text_before(tags.bodies)
            stray = self._stray(text)
            if edge != tags.call:
                break
            place = reader.offset
            reader.take(len(tags.call))
            functions += 1
            if not (yield from self._function(place, stray)):
                return

        if not functions:
            flaw = self._why_empty(stray, edge)
            self.refuse(flaw, position=start, raw=tags.open + text)
        else:
            self._notice_end(stray, edge)
        yield from reader.accept(tags.close)

    def _stray(self, text: str) -> str:
        """Return what does not belong between two functions."""
        stray = text.strip()
        for part in self.tags.around:
            if part:
                stray = stray.replace(part, "").strip()
        return stray

    def _why_empty(self, stray: str, edge: str | None) -> Flaw:
        """Return why there is no function in a section."""
        tags = self.tags
        if stray:
            message = f"there is no {tags.call}TOOL{tags.tag_end} after {tags.open}"
            return Flaw("no_call_object", message)
        if edge is None:
            return NOT_BEGUN
        return Flaw("empty_call", f"there is nothing between {tags.open} and {tags.close}")

    def _notice_end(self, stray: str, edge: str | None) -> None:
        """Report what is odd after the last function of a section."""
        tags = self.tags
        if edge != tags.close:
            message = f"A {tags.close} is missing. The call before it was complete and was made."
            self.problem(
                "missing_close", message, position=self.reader.offset, raw=stray, severity="noticed"
            )
        elif stray and self._ended_well:
            self.refuse_left_over([(self.reader.offset - len(stray), stray)])
        elif stray:
            # It may be the rest of the call before it, which was refused.
            message = f"There is text after {tags.call_end}, which was ignored."
            self.problem(
                "stray_text", message, position=self.reader.offset, raw=stray, severity="noticed"
            )

    def _function(self, start: int, stray: str) -> Scan[bool]:
        """Read one function; return False if the rest of the section had to be skipped."""
        reader = self.reader
        tags = self.tags
        raw = [tags.call]
        name, _ = yield from self._header(raw, tags.call)
        if name is None or not NAME.fullmatch(name):
            kind = "missing_name" if (yield from reader.peek()) else "truncated"
            message = f"{tags.call} is not followed by the name of a tool and {tags.tag_end}"
            return (yield from self._skip(Flaw(kind, message), start, raw, None))

        call = RawCall(name, start, raw)
        misplaced = tags.parts.pattern.search(stray)
        if misplaced and self._ended_well:
            call.fail(Flaw("bad_layout", f"there is a {misplaced[0]} before its {tags.call}"))
        elif misplaced or '"' in stray:
            self.refuse_left_over([(start - len(stray), stray)])
        elif stray:
            call.repaired.append(Flaw("stray_text", f"there is text before it ({stray[:40]!r})"))
        while True:
            gap = yield from reader.spaces()
            raw.append(gap)
            if (yield from reader.accept(tags.call_end)):
                raw.append(tags.call_end)
                break
            flaw = yield from self._parameter(call, gap)
            if flaw:
                return (yield from self._skip(flaw, start, raw, name))

        following = yield from reader.upcoming(tags.parts)
        if following in (tags.call_end, tags.argument, tags.closing):
            message = f"it goes on after {tags.call_end}, so a value may contain tags of the format"
            call.fail(Flaw("bad_layout", message))
        self._ended_well = call.flaw is None
        self.report_raw(call)
        return True

    def _parameter(self, call: RawCall, gap: str) -> Scan[Flaw | None]:
        """Read one parameter; return the flaw if the rest of the call cannot be read.

        ``gap`` is the white space before it.
        """
        reader = self.reader
        tags = self.tags
        if not (yield from reader.accept(tags.argument)):
            kind = "bad_layout" if (yield from reader.peek()) else "truncated"
            expected = f"{tags.argument}KEY{tags.tag_end} nor {tags.call_end}"
            return call.fail(Flaw(kind, f"there is neither {expected} where one is expected"))
        call.raw.append(tags.argument)
        key, hint = yield from self._header(call.raw, tags.argument)
        if not key:
            kind = "bad_layout" if (yield from reader.peek()) else "truncated"
            message = f"{tags.argument} is not followed by a name and {tags.tag_end}"
            return call.fail(Flaw(kind, message))

        value = yield from self._value(call.raw)
        if value.fault:
            if value.fault == "truncated":
                call.raw.append((yield from self.skip_rest()))
            return call.fail(_unclosed(value, key, tags))
        if value.implied:
            call.repaired.append(Flaw("missing_close", f"the {tags.closing} of {key} is missing"))
        if value.escaped:
            message = f"{value.escaped} in its parameter {key} was read as an escape of XML"
            call.repaired.append(Flaw("xml_escape", message))
        text = value.text
        if tags.padded:
            text = _without_layout(text, crlf="\r\n" in gap)
        if tags.hint and not hint:
            message = f"its parameter {key} has no {tags.hint}=…"
            call.repaired.append(Flaw("missing_marker", message))
            if text.lstrip().startswith(tags.hint):
                call.fail(Flaw("bad_layout", f"the tag of its parameter {key} is broken"))
        self.add_argument(call, key, text, what="parameter", hint=hint)
        return None

    def _value(self, raw: list[str]) -> Scan[TagValue]:
        """Read a value and its closing tag; a misspelt tag is a fault, too."""
        reader = self.reader
        tags = self.tags
        in_block = tags.cdata and bool((yield from reader.ahead((CDATA,))))
        if not in_block:
            value = yield from self._up_to_tag(tags.value)
            raw.append(reader.since_mark())
            return _without_block(value) if tags.cdata else value

        raw.append((yield from reader.spaces()))
        raw.append(reader.take(len(CDATA)))
        value = yield from self._up_to_tag(tags.block)
        if value.fault and value.fault != "unbalanced":
            # There may be white space between the end of the block and the closing tag.
            reader.rewind()
            value = yield from self._up_to_tag(tags.value)
            text = value.text.rstrip()
            if text.endswith(CDATA_END):
                value = TagValue(text.removesuffix(CDATA_END))
            elif not value.fault:
                value = TagValue(fault="unclosed")
        raw.append(reader.since_mark())
        return value

    def _up_to_tag(self, spec: TagSpec) -> Scan[TagValue]:
        value = yield from read_tag_value(self.reader, spec)
        if not value.fault and misspelt(value.text, spec):
            return TagValue(fault="misspelt")
        return value

    def _skip(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[bool]:
        """Refuse the call and skip the rest of it; return whether others may follow."""
        yield from self.give_up(flaw, start, raw, name)
        return self.tags.many and bool(self.reader.left)

    def _header(self, raw: list[str], opening: str) -> Scan[tuple[str | None, str]]:
        """Read the rest of a tag; return the name in it, or None, and the hint at the type."""
        text, edge = yield from self.reader.text_before(self.tags.header)
        raw.append(text)
        if edge != self.tags.tag_end:
            return None, ""
        raw.append(self.reader.take(len(edge)))
        if not opening.endswith('"'):
            return text.strip(), ""
        name, quote, rest = text.partition('"')
        found = re.search(rf'\b{self.tags.hint}="([^"]*)"', rest) if self.tags.hint else None
        hint = found[1] if found else ""
        return (name.strip() if quote else None), hint


def _unclosed(value: TagValue, key: str, tags: Tags) -> Flaw:
    """Return the flaw of a value that does not end as it should."""
    if value.fault == "truncated":
        return Flaw("truncated", f"the text ends inside its parameter {key}")
    if value.fault == "unbalanced":
        return Flaw("bad_layout", f"the tags in its parameter {key} do not balance")
    if value.fault == "misspelt":
        return Flaw("bad_layout", f"a tag in or after its parameter {key} is misspelt")
    return Flaw("bad_layout", f"its parameter {key} is not closed by {tags.closing}")


def _without_block(value: TagValue) -> TagValue:
    """Return a value that is in no CDATA block without XML's escapes.

    As in the engines, text that is not XML is taken as it stands.
    """
    text = value.text.strip()
    if text.endswith(CDATA_END) or begins_like(text, CDATA):
        return TagValue(fault="misspelt")
    escape = _ESCAPE.search(value.text)
    if value.fault or escape is None or _NOT_XML.search(_ESCAPE.sub("", value.text)):
        return value
    text = _ESCAPE.sub(lambda found: unescape(found[0]), value.text)
    return replace(value, text=text, escaped=escape[0])


def _without_layout(text: str, *, crlf: bool) -> str:
    """Remove the line break that the layout puts at either end of a value."""
    if text.startswith("\r\n"):
        crlf = True
        inner = text.removeprefix("\r\n")
    else:
        inner = text.removeprefix("\n")
    # A lone \r before the last line break belongs to the value if the layout does not use it.
    if crlf and inner.endswith("\r\n"):
        return inner.removesuffix("\r\n")
    return inner.removesuffix("\n")


class TagFormat(Format):
    """A format in which the values of a call are raw text between tags."""

    parser: ClassVar[type[RawTextParser]]
    first_number = 1
    argument: ClassVar[str]
    """One argument, with ``{key}`` and ``{value}``."""

    def write(self, calls: list[tuple[str, dict[str, Any]]], tools: Toolbox, variant: str) -> str:
        for name, _ in calls:
            if not NAME.fullmatch(name):
                raise RenderError(f"{self.name} cannot express the name {name!r}")
        return super().write(calls, tools, variant)

    def write_arguments(self, name: str, arguments: dict[str, Any], tools: Toolbox) -> str:
        return "".join(
            self.write_argument(key, value, tools.types(name, key))
            for key, value in arguments.items()
        )

    def write_argument(self, key: str, value: Any, types: frozenset[str] = frozenset()) -> str:
        if not self.parser.tags.hint:
            text = write_value(value, types)
            if self.parser.tags.cdata and _NEEDS_CDATA.search(text):
                text = f"{CDATA}{text}{CDATA_END}"
        elif isinstance(value, str):
            text = value
        else:
            text = dump(value)
        parts = {
            "{key}": key,
            "{string}": dump(isinstance(value, str)),
            "{type}": _KINDS.get(type(value), "null"),
        }
        return re.sub(r"\{\w+\}", lambda part: parts.get(part[0], text), self.argument)
