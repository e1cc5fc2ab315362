"""Calls written as tags with raw values between them:
``<function=NAME><parameter=KEY>VALUE</parameter></function>``.

A format declares what its tags are. In some the key and the value have tags of their own
(``PairParser``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from sfusion_tools.errors import RenderError

from .format import Format
from .jsontext import CUT_HEAD, NOT_BEGUN, Flaw, Loaded, dump
from .rawvalue import NAME, TagSpec, TagValue, misspelt, read_tag_value, read_value, write_value
from .streamparser import StreamParser
from .text_reader import Markers, Scan
from .toolbox import Toolbox

_GAP = re.compile(r"(?:\s|\\n)+")
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
    """Before a call, or before all calls of a turn if ``many``."""
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

    @cached_property
    def edges(self) -> Markers:
        return Markers((self.close, self.open, *((self.call,) if self.many else ())))

    @cached_property
    def parts(self) -> Markers:
        return Markers(
            (self.close, self.open, self.call, self.call_end, self.argument, self.closing)
        )

    @cached_property
    def bodies(self) -> Markers:
        return Markers((self.close, self.open, self.call))

    @cached_property
    def header(self) -> Markers:
        """What ends the rest of a tag, well or not."""
        others = (self.argument, self.closing) if self.tag_end.startswith("<") else ("<",)
        return Markers(
            (self.tag_end, "\n", *(mark[: mark.find(">") + 1 or None] for mark in others))
        )

    @cached_property
    def value(self) -> TagSpec:
        implicit = None
        if self.padded:
            opening = rf"{re.escape(self.argument)}[^<>\n]+{self.tag_end}"
            implicit = re.compile(rf"\n(?={opening}|{self.call_end}\s*(?:{self.close}|\Z))")
        barriers = (self.open, self.call) if self.many else (self.open,)
        return TagSpec(
            self.argument, self.closing, (self.argument, self.call_end), barriers, implicit=implicit
        )

    @cached_property
    def heads(self) -> Markers:
        return Markers((self.argument, self.value_open, self.call_end, self.open))

    @cached_property
    def keys(self) -> Markers:
        return Markers((self.key_close, self.argument, self.value_open, self.call_end, self.open))

    @cached_property
    def pair_value(self) -> TagSpec:
        return TagSpec(
            self.value_open,
            self.closing,
            (self.argument, self.call_end),
            (self.open, self.argument),
            gap=_GAP,
        )

    @property
    def key_close(self) -> str:
        return self.key_end[: self.key_end.index(">") + 1]

    @property
    def value_open(self) -> str:
        return self.key_end[self.key_end.rindex("<") :]


class RawTextParser(StreamParser):
    """A parser for formats with raw values between tags."""

    tags: ClassVar[Tags]

    def give_up(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[None]:
        """Refuse the call and skip the rest of it."""
        edge = yield from self.reader.before(self.tags.edges, raw.append)
        if edge == self.tags.close and not self.tags.many:
            raw.append(self.reader.take(len(edge)))
        self.refuse(flaw, position=start, raw="".join(raw), name=name)

    def add_argument(
        self, arguments: dict[str, Any], name: str, key: str, text: str, what: str, hint: str = ""
    ) -> Flaw | None:
        """Add a value to the arguments of a call, and return what is wrong with it, if anything."""
        read = self._read(name, key, text, hint)
        flaw = Flaw("duplicate_key", f"it has the {what} {key} twice") if key in arguments else None
        if isinstance(read, Flaw):
            return flaw or read
        arguments[key] = read.value
        return flaw

    def _read(self, name: str, key: str, text: str, hint: str) -> Loaded | Flaw:
        types = self.tools.types(name, key)
        if hint in ("true", "string"):
            return Loaded(text)
        if hint and hint not in ("false", "null", *_JSON_TYPES):
            return Flaw("bad_value", f'its parameter {key} has {self.tags.hint}="{hint[:40]}"')
        return read_value(text, (types - {"string"} or _JSON_TYPES) if hint else types, key)


class TagParser(RawTextParser):
    """Reads functions one by one; types come from the schema, or from an attribute of the tag."""

    def opened(self, marker: str) -> Scan[None]:
        reader, tags = self.reader, self.tags
        start = reader.offset - len(marker)
        functions = 0
        while True:
            text, edge = yield from reader.text_before(tags.bodies)
            stray = text.strip()
            for part in tags.around:
                stray = stray.replace(part, "").strip() if part else stray
            if edge == tags.call:
                place = reader.offset
                reader.take(len(tags.call))
                functions += 1
                if not (yield from self._function(place, stray)):
                    return
                continue
            if not functions:
                if stray:
                    flaw = Flaw(
                        "no_call_object",
                        f"there is no {tags.call}TOOL{tags.tag_end} after {tags.open}",
                    )
                elif edge is None:
                    flaw = NOT_BEGUN
                else:
                    flaw = Flaw(
                        "empty_call", f"there is nothing between {tags.open} and {tags.close}"
                    )
                self.refuse(flaw, position=start, raw=tags.open + text)
            elif stray and edge == tags.close:
                message = f"There is text after {tags.call_end}, which was ignored."
                self.problem("stray_text", message, reader.offset, stray, "noticed")
            elif edge != tags.close:
                message = (
                    f"A {tags.close} is missing. The call before it was complete and was made."
                )
                self.problem("missing_close", message, reader.offset, stray, "noticed")
            yield from reader.accept(tags.close)
            return

    def _function(self, start: int, stray: str) -> Scan[bool]:
        """Read one function; return False if the rest of the section had to be skipped."""
        reader, tags = self.reader, self.tags
        raw = [tags.call]
        name, _ = yield from self._header(raw, tags.call)
        flaw: Flaw | None = None
        if name is None or not NAME.fullmatch(name):
            kind = "missing_name" if (yield from reader.peek()) else "truncated"
            flaw = Flaw(
                kind, f"{tags.call} is not followed by the name of a tool and {tags.tag_end}"
            )
            return (yield from self._skip(flaw, start, raw, None))
        repaired = (
            [Flaw("stray_text", f"there is text before it ({stray[:40]!r})")] if stray else []
        )
        arguments: dict[str, Any] = {}
        while True:
            gap = yield from reader.spaces()
            raw.append(gap)
            if (yield from reader.accept(tags.call_end)):
                raw.append(tags.call_end)
                break
            if not (yield from reader.accept(tags.argument)):
                char = yield from reader.peek()
                expected = f"{tags.argument}KEY{tags.tag_end} nor {tags.call_end}"
                flaw = flaw or Flaw(
                    "bad_layout" if char else "truncated",
                    f"there is neither {expected} where one is expected",
                )
                return (yield from self._skip(flaw, start, raw, name))
            raw.append(tags.argument)
            key, hint = yield from self._header(raw, tags.argument)
            if not key:
                kind = "bad_layout" if (yield from reader.peek()) else "truncated"
                flaw = flaw or Flaw(
                    kind, f"{tags.argument} is not followed by a name and {tags.tag_end}"
                )
                return (yield from self._skip(flaw, start, raw, name))
            value = yield from read_tag_value(reader, tags.value)
            raw.append(reader.since_mark())
            if value.fault or misspelt(value.text, tags.value):
                if value.fault == "truncated":
                    raw.append((yield from self.skip_rest()))
                return (
                    yield from self._skip(flaw or _unclosed(value, key, tags), start, raw, name)
                )
            if value.implied:
                repaired.append(Flaw("missing_close", f"the {tags.closing} of {key} is missing"))
            text = _without_layout(value.text, crlf="\r\n" in gap) if tags.padded else value.text
            if tags.hint and not hint:
                repaired.append(Flaw("missing_marker", f"its parameter {key} has no {tags.hint}=…"))
                if text.lstrip().startswith(tags.hint):
                    flaw = flaw or Flaw("bad_layout", f"the tag of its parameter {key} is broken")
            wrong = self.add_argument(arguments, name, key, text, "parameter", hint)
            flaw = flaw or wrong
        if (yield from reader.upcoming(tags.parts)) in (tags.call_end, tags.argument, tags.closing):
            flaw = flaw or Flaw(
                "bad_layout",
                f"it goes on after {tags.call_end}, so a value may contain tags of the format",
            )
        self.call(
            name, flaw or Loaded(arguments), position=start, raw="".join(raw), repaired=repaired
        )
        return True

    def _skip(self, flaw: Flaw, start: int, raw: list[str], name: str | None) -> Scan[bool]:
        yield from self.give_up(flaw, start, raw, name)
        return self.tags.many and bool(self.reader.left)

    def _header(self, raw: list[str], opening: str) -> Scan[tuple[str | None, str]]:
        """Read the rest of a tag; return the name in it, None if there is none, and the hint at the
        type."""
        text, edge = yield from self.reader.text_before(self.tags.header)
        raw.append(text)
        if edge != self.tags.tag_end:
            return None, ""
        raw.append(self.reader.take(len(edge)))
        if not opening.endswith('"'):
            return text.strip(), ""
        name, quote, rest = text.partition('"')
        found = re.search(rf'\b{self.tags.hint}="([^"]*)"', rest) if self.tags.hint else None
        return (name.strip() if quote else None), found[1] if found else ""


def _unclosed(value: TagValue, key: str, tags: Tags) -> Flaw:
    if value.fault == "truncated":
        return Flaw("truncated", f"the text ends inside its parameter {key}")
    if value.fault:
        return Flaw("bad_layout", f"its parameter {key} is not closed by {tags.closing}")
    return Flaw("bad_layout", f"a tag in or after its parameter {key} is misspelt")


def _without_layout(text: str, *, crlf: bool) -> str:
    """Remove the line break that the layout puts at either end of a value."""
    crlf = crlf or text.startswith("\r\n")
    inner = text.removeprefix("\r\n" if text.startswith("\r\n") else "\n")
    # A lone \r before the last line break belongs to the value if the layout does not use it.
    return inner.removesuffix("\r\n" if crlf and inner.endswith("\r\n") else "\n")


class PairParser(RawTextParser):
    """Reads a name, and keys and values with tags of their own; types come from the schema."""

    def opened(self, marker: str) -> Scan[None]:
        reader, tags = self.reader, self.tags
        start = reader.offset - len(marker)
        head, edge = yield from reader.text_before(tags.heads)
        bare = head.replace(tags.call, "\n", 1) if tags.call else head
        lines = [line for line in bare.replace("\\n", "\n").split("\n") if line.strip()]
        name = lines[0].strip() if lines else ""
        raw = [marker, head]
        if edge is None:
            self.refuse(CUT_HEAD, position=start, raw=marker + head)
            return
        flaw = self._name_flaw(name, bare, edge)
        if flaw:
            yield from self.give_up(flaw, start, raw, name if NAME.fullmatch(name) else None)
            return
        repaired: list[Flaw] = []
        if len(lines) > 1:
            repaired.append(
                Flaw("stray_text", f"there is text after its name ({lines[1].strip()[:40]!r})")
            )
        yield from self._arguments(name, start, raw, repaired)

    def _name_flaw(self, name: str, head: str, edge: str) -> Flaw | None:
        tags = self.tags
        if not name:
            if edge == tags.close:
                return Flaw("empty_call", f"there is nothing between {tags.open} and {tags.close}")
            return Flaw("missing_name", f"there is no name after {tags.open}")
        if not NAME.fullmatch(name):
            return Flaw("missing_name", f"{name[:40]!r} is not a tool name")
        if edge == tags.close and not tags.empty and "\n" not in head and "\\n" not in head:
            return Flaw("bad_layout", "a call without arguments needs a line break after its name")
        return None

    def _arguments(self, name: str, start: int, raw: list[str], repaired: list[Flaw]) -> Scan[None]:
        reader, tags = self.reader, self.tags
        arguments: dict[str, Any] = {}
        flaw: Flaw | None = None
        while True:
            gap, edge = yield from reader.text_before(tags.heads)
            raw.append(gap)
            stray = _GAP.sub("", gap)
            if stray and edge is not None:
                repaired.append(
                    Flaw(
                        "stray_text", f"there is extra text next to its arguments ({stray[:40]!r})"
                    )
                )
            if edge is None:
                flaw = flaw or Flaw("truncated", f"the text ends before {tags.close}")
                break
            if edge == tags.open:
                flaw = flaw or Flaw("bad_layout", f"its {tags.close} is missing")
                break
            raw.append(reader.take(len(edge)))
            if edge == tags.close:
                break
            if edge == tags.value_open:
                fault = Flaw("bad_layout", f"there is a {edge} without {tags.argument}")
                yield from self.give_up(fault, start, raw, name)
                return
            key, value, failed = yield from self._pair(raw)
            if failed:
                if failed.kind == "truncated":
                    yield from self.skip_rest()
                yield from self.give_up(failed, start, raw, name)
                return
            wrong = self.add_argument(arguments, name, key, value, "argument")
            flaw = flaw or wrong
        self.call(
            name, flaw or Loaded(arguments), position=start, raw="".join(raw), repaired=repaired
        )

    def _pair(self, raw: list[str]) -> Scan[tuple[str, str, Flaw | None]]:
        reader, tags = self.reader, self.tags
        key, edge = yield from reader.text_before(tags.keys)
        raw.append(key)
        if edge != tags.key_close:
            kind = "truncated" if edge is None else "bad_layout"
            return "", "", Flaw(kind, f"an {tags.argument} is not followed by {tags.key_close}")
        raw.append(reader.take(len(edge)))
        following = yield from reader.ahead((tags.value_open,), _GAP)
        if following != tags.value_open:
            kind = "truncated" if following == "" else "bad_layout"
            return "", "", Flaw(kind, f"its argument {key[:40]} has no {tags.value_open}")
        yield from reader.run(_GAP)
        raw.append(reader.take(len(following)))
        value = yield from read_tag_value(reader, tags.pair_value)
        raw.append(reader.since_mark())
        if value.fault == "truncated":
            return "", "", Flaw("truncated", f"the text ends inside its argument {key[:40]}")
        if value.fault or misspelt(value.text, tags.pair_value):
            message = f"its argument {key[:40]} is not closed by {tags.closing}"
            return "", "", Flaw("bad_layout", f"{message} and then {tags.argument} or {tags.close}")
        return key.strip(), value.text, None


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
        hint = self.parser.tags.hint
        text = (
            write_value(value, types)
            if not hint
            else value
            if isinstance(value, str)
            else dump(value)
        )
        parts = {
            "{key}": key,
            "{string}": dump(isinstance(value, str)),
            "{type}": _KINDS.get(type(value), "null"),
        }
        return re.sub(r"\{\w+\}", lambda part: parts.get(part[0], text), self.argument)
