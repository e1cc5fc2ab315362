"""Calls with the name in a header, followed by the JSON arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from .callobject import CLOSERS, UNESCAPED, load_arguments
from .format import Format
from .jsontext import CUT_HEAD, CUT_MARKER, NOT_BEGUN, UNCLOSED, Flaw, JsonScan, Loaded, scan_json
from .streamparser import NAMELESS, StreamParser
from .text_reader import Markers, Scan, begins_any

_BLANKS = re.compile(r"[ \t]+")


class ArgumentTextParser(StreamParser):
    """A parser for formats in which the arguments end at their own marker."""

    ends: ClassVar[tuple[str, ...]]
    """The markers that correctly close arguments; empty if they end with their object."""
    edges: ClassVar[Markers]
    """All markers that end a call, correctly or not; includes ``ends``."""
    section: ClassVar[tuple[str, str]] = ("", "")
    """The markers around all calls of a turn, in formats that have them."""
    cut_inside = False
    """Set when the text ended inside a call; an unclosed section is then not reported as well."""

    def arguments(
        self,
        name: str | None,
        start: int,
        header: str,
        *,
        call_id: str | None = None,
        repaired: Sequence[Flaw] = (),
        padding: str = "",
    ) -> Scan[None]:
        """Read the arguments and report the call.

        ``padding`` is allowed between them and the end marker.
        """
        reader = self.reader
        yield from reader.spaces()
        reader.mark()
        for end in self.ends:
            if (yield from reader.accept(end)):
                flaw = Flaw("missing_arguments", "it has no arguments; write {} if there are none")
                self.refuse(flaw, position=start, raw=header + end, name=name)
                return

        scan = yield from scan_json(reader)
        if scan.fault:
            yield from self._broken(scan, scan.fault, name, start, header)
            return
        tail, edge = yield from self.tail()
        raw = header + reader.since_mark()
        read = self._read(scan, tail, edge, padding)
        if name is None and isinstance(read, Loaded):
            self._nameless(read, start, raw)
        else:
            self.call(name, read, position=start, raw=raw, call_id=call_id, repaired=repaired)

    def tail(self) -> Scan[tuple[str, str | None]]:
        """Read what follows the arguments, up to the marker that ends the call."""
        return (yield from self.to_edge())

    def to_edge(self) -> Scan[tuple[str, str | None]]:
        """Read up to the marker that ends the call; return the text and the marker.

        The marker is read too if it is the correct one.
        """
        text, edge = yield from self.reader.text_before(self.edges)
        if edge is not None and edge in self.ends:
            self.reader.take(len(edge))
        return text, edge

    def _nameless(self, read: Loaded, start: int, raw: str) -> None:
        self.refuse(NAMELESS, position=start, raw=raw)

    def _broken(
        self, scan: JsonScan, fault: Flaw, name: str | None, start: int, header: str
    ) -> Scan[None]:
        """Refuse a call whose arguments are not JSON, and skip it."""
        reader = self.reader
        ends = self.ends or self.edges.literals
        if scan.truncated and not any(end in reader.since_mark() for end in ends):
            yield from self.skip_rest()
            raw = header + reader.since_mark()
            self.cut_inside = True
        else:
            if scan.truncated:
                fault = UNCLOSED
            reader.rewind()
            skipped, edge = yield from self.to_edge()
            raw = f"{header}{skipped}{edge or ''}"
        self.refuse(fault, position=start, raw=raw, name=name)

    def _read(self, scan: JsonScan, tail: str, edge: str | None, padding: str) -> Loaded | Flaw:
        """Return the arguments, judged by what is between them and the end marker."""
        read = load_arguments(scan)
        if isinstance(read, Flaw):
            return read

        repaired = list(read.repaired)
        rest = self._rest(tail, edge, padding)
        if rest == scan.text.strip():
            repaired.append(
                Flaw("doubled_payload", "its arguments appear twice; one copy was used")
            )
        elif rest.startswith("{"):
            return Flaw(
                "several_arguments", "it has several objects of arguments; write one call for each"
            )
        elif '"' in rest:
            return UNESCAPED
        elif rest:
            message = f"there is text after its arguments ({rest[:40]!r}), which was ignored"
            repaired.append(Flaw("stray_text", message))
        if self.ends and edge != self.ends[0]:
            repaired.append(Flaw("missing_close", f"its {self.ends[0]} is missing"))
        return Loaded(read.value, tuple(repaired))

    def _rest(self, tail: str, edge: str | None, padding: str) -> str:
        """Return what does not belong after the arguments.

        At the end of the text, the beginning of an end marker belongs there.
        """
        rest = tail.strip()
        if edge is None and begins_any(rest, (*self.ends, padding)):
            return ""
        rest = rest.removeprefix(padding).removesuffix(padding).strip()
        if edge is None and begins_any(rest, self.ends):
            return ""
        return rest


class MessageParser(ArgumentTextParser):
    """A parser for formats in which a call is a message: its recipient, and its arguments."""

    bodies = ("{",)
    _line: ClassVar[Markers]

    def __init_subclass__(cls) -> None:
        cls._line = Markers((*cls.edges.literals, "\n", '"}'))

    def opened(self, marker: str) -> Scan[None]:
        assert self.header is not None
        yield from self.message(self.header, marker)

    def addressed(self, recipient: str, position: int, raw: str) -> Scan[None]:
        yield from self.arguments(recipient or None, position, raw)

    def tail(self) -> Scan[tuple[str, str | None]]:
        """Read what belongs to the arguments; other text is content."""
        reader = self.reader
        again = yield from reader.ahead(("{", "\n{", "\r\n{"), _BLANKS)
        if again or (yield from reader.upcoming(self._line)) == '"}':
            return (yield from self.to_edge())
        return (yield from reader.run(CLOSERS)), None


class SectionParser(ArgumentTextParser):
    """A parser for formats that put all calls of a turn into one section.

    Each call has a head before its arguments.
    """

    tags: ClassVar[tuple[str, str]]
    """The markers around one call."""
    separator: ClassVar[str]
    """The marker between the head of a call and its arguments."""
    head: ClassVar[re.Pattern[str]] = re.compile(r"(?P<name>.*)", re.DOTALL)
    """What is before the separator."""
    heading: ClassVar[str] = "name"
    """What the head of a call is, for messages."""
    _heads: ClassVar[Markers]
    _open = False

    def __init_subclass__(cls) -> None:
        begin, end = cls.tags
        section = tuple(filter(None, cls.section))
        cls.openers = (*section[:1], begin)
        cls.drafts = (begin,)
        cls.enclosing = cls.section
        cls.ends = (end,)
        cls.edges = Markers((end, begin, *section))
        cls._heads = Markers((cls.separator, *section, begin, end))

    def opened(self, marker: str) -> Scan[None]:
        start = self.reader.offset - len(marker)
        begin, end = self.section
        if marker != begin:
            yield from self._call_opened(start, marker)
            return

        self._open = True
        following = yield from self.reader.ahead((end, *self.openers))
        if following == end:
            flaw = Flaw("empty_call", "the section of calls is empty")
            self.refuse(flaw, position=start, raw=marker)
        elif following == "":
            self.refuse(NOT_BEGUN, position=start, raw=marker)
            self._open = False
        elif following is None:
            edge = yield from self.reader.upcoming(self.edges)
            if edge not in self.openers:
                yield from self._without_call(start, marker)
        self.interrupt()

    def _without_call(self, start: int, marker: str) -> Scan[None]:
        """Refuse a section whose text begins no call."""
        call = self.tags[0]
        text, edge = yield from self.reader.text_before(self.edges)
        if edge is None and call.startswith(text.strip()):
            flaw = CUT_MARKER
            self._open = False
        else:
            flaw = Flaw("no_call_object", f"there is no {call} after {marker}")
        self.refuse(flaw, position=start, raw=marker + text)

    def _call_opened(self, start: int, marker: str) -> Scan[None]:
        """Read the head of a call after the marker that begins it."""
        head, edge = yield from self.reader.text_before(self._heads)
        if edge == self.separator:
            self.reader.take(len(edge))
            yield from self.headed(head, start)
            return
        if edge is None:
            self.cut_inside = True
            flaw = CUT_HEAD
        elif head.strip():
            message = f"{self.separator} is missing between its {self.heading} and its arguments"
            flaw = Flaw("bad_layout", message)
        else:
            flaw = Flaw("empty_call", f"there is nothing between {marker} and {self.tags[1]}")
        yield from self.reader.accept(self.tags[1])
        self.refuse(flaw, position=start, raw=marker + head)

    def headed(self, head: str, start: int) -> Scan[None]:
        """Continue after the separator; the head has the name, and the id if there is one."""
        found = self.head.fullmatch(head.strip())
        parts = found.groupdict() if found else {"name": head.strip()}
        name = parts["name"].strip() or None
        header = f"{self.tags[0]}{head}{self.separator}"
        yield from self.arguments(name, start, header, call_id=parts.get("id") or None)

    def passed(self, marker: str) -> None:
        if marker == self.section[1]:
            self._open = False

    def ended(self) -> None:
        if self._open and not self.cut_inside:
            message = (
                f"The text ends before {self.section[1]}: the calls above are "
                "complete, but there may have been more."
            )
            self.problem(
                "unclosed_section", message, position=self.reader.offset, raw="", severity="noticed"
            )


class ArgumentTextFormat(Format):
    """A format with the name in a header, followed by the JSON arguments."""

    parser: ClassVar[type[ArgumentTextParser]]
