"""Calls written as a list of JSON objects after a marker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from .callobject import CLOSERS, DOUBLED, UNESCAPED, FoundObject, ObjectCallParser
from .format import Format
from .jsontext import NOT_BEGUN, Flaw, JsonScan, scan_json
from .streamparser import Tools
from .text_reader import Scan, markers_of


@dataclass(slots=True)
class _ListContent:
    """What was read of a list of calls."""

    elements: int = 0
    closed: bool = False
    separated: bool = True
    """A comma, or nothing at all, is before the next element."""
    found: list[tuple[FoundObject, list[Flaw]]] = field(default_factory=list)
    """The good elements, each with what was repaired in it."""


class ListParser(ObjectCallParser):
    """Reads a list of objects after a marker; a broken element does not end the list."""

    close: ClassVar[str] = ""
    """A marker after the list."""

    def __init__(self, form: Format, tools: Tools = None, *, in_think: bool = False) -> None:
        super().__init__(form, tools, in_think=in_think)
        if not self.keys[0]:
            self.siblings = tuple(f'{{"{name}"' for name in self.tools.names) or ('{"TOOL"',)
        self.signs = markers_of(*self.siblings, *self.openers)
        self._next = markers_of(*self.openers, "]", *self.siblings)
        self._closing = markers_of(*self.openers, *filter(None, (self.close,)))

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        if "[" in marker[:1] + marker[-1:] and not marker.endswith("]"):
            # The bracket is a part of the marker, because what is before it may be prose.
            reader.seek(start + marker.rindex("[") + 1)
            yield from self._list(start, marker)
            return
        yield from reader.spaces()
        char = yield from reader.peek()
        if char == "[":
            reader.take(1)
            yield from self._list(start, marker)
        elif char == "{":
            yield from self._object(start)
        elif char:
            yield from self.without_list(start, marker)
        else:
            self.refuse(NOT_BEGUN, position=start, raw=marker)

    def without_list(self, start: int, marker: str) -> Scan[None]:
        """Refuse a marker that is followed by neither a list nor an object."""
        edges = markers_of(*self.openers, self.close or "\n")
        text, edge = yield from self.reader.text_before(edges)
        if edge == self.close and edge:
            self.reader.take(len(edge))
        kind = "no_call_object" if text.strip() else "empty_call"
        flaw = Flaw(kind, f"there is no list of calls after {marker}")
        self.refuse(flaw, position=start, raw=marker + text)

    def _list(self, start: int, marker: str) -> Scan[None]:
        """Read the rest of a list and report its calls."""
        reader = self.reader
        content = _ListContent()
        while not content.closed:
            yield from reader.spaces()
            if (yield from reader.accept(",")):
                content.separated = True
                continue
            content.closed = yield from reader.accept("]")
            char = yield from reader.peek()
            if content.closed or not char or (yield from self._sees_edge()):
                break
            yield from self._element(content)

        if not content.elements:
            kind = "empty_call" if content.closed else "truncated"
            flaw = Flaw(kind, f"there is no call in the list after {marker}")
            self.refuse(flaw, position=start, raw=f"{marker} [")
        missing = yield from self._missing_close(content)
        if missing and content.found:
            _, remarks = content.found[-1]
            remarks.append(Flaw("missing_close", f"{missing} is missing"))
        nested = Flaw("bad_layout", "its list is nested in another list")
        for item, remarks in content.found:
            self.report([item], remarks, crowded=nested)

    def _element(self, content: _ListContent) -> Scan[None]:
        """Read one element of a list; a broken one is refused and skipped."""
        reader = self.reader
        content.elements += 1
        remarks: list[Flaw] = []
        if not content.separated:
            remarks.append(Flaw("bad_separator", "there is no comma before it"))
        content.separated = False

        position = reader.offset
        reader.mark()
        scan = yield from scan_json(reader)
        if scan.fault:
            content.closed = yield from self._broken(scan, scan.fault, position)
            content.separated = True
            return

        item = FoundObject(scan, position, reader.since_mark())
        if (yield from reader.run(CLOSERS)):
            remarks.append(Flaw("stray_text", "it is followed by an extra }"))
        if not (yield from self._ends_well()):
            reader.waste(position)
            content.closed = yield from self._broken(scan, UNESCAPED, position)
        elif remarks and content.found and content.found[-1][0].scan.text == scan.text:
            self.refuse(DOUBLED, position=position, raw=item.raw)
        else:
            content.found.append((item, remarks))

    def _missing_close(self, content: _ListContent) -> Scan[str]:
        """Read the marker after a list, if there is one; return what is missing."""
        missing = "" if content.closed else "the ] after the calls"
        if not self.close:
            return missing
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        if (yield from reader.accept(self.close)):
            return missing
        reader.rewind()
        if (yield from self._left_over()):
            return missing
        return missing or self.close

    def _left_over(self) -> Scan[bool]:
        """Refuse what is between the calls and the marker after them; return whether it comes."""
        reader = self.reader
        if not self.close or (yield from reader.upcoming(self._closing)) != self.close:
            return False
        position = reader.offset
        text, _ = yield from reader.text_before(self._closing)
        reader.take(len(self.close))
        self.refuse_left_over([(position, text)])
        return True

    def _sees_edge(self) -> Scan[bool]:
        for edge in (*self.openers, self.close):
            if edge and (yield from self.reader.sees(edge)):
                return True
        return False

    def _ends_well(self) -> Scan[bool]:
        """Return whether a valid part of the list follows an element."""
        yield from self.reader.spaces()
        char = yield from self.reader.peek()
        return char in ("", ",", "]", "{") or (yield from self._sees_edge())

    def _broken(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Skip a broken element; return whether that was the end of the list."""
        reader = self.reader
        may_look = scan.fault is not None or not reader.exhausted
        if may_look and (yield from self.refuse_up_to_sibling(scan, fault, position)):
            return False

        if scan.truncated:
            yield from self.skip_rest()
            self.refuse(fault, position=position, raw=reader.since_mark())
            return False
        while True:
            edge = yield from reader.before(self._next)
            if edge != "]":
                self.refuse(fault, position=position, raw=reader.since_mark())
                return False
            reader.take(1)
            after = yield from reader.peek()
            if after in ("", "\n", " ", "<", "["):
                self.refuse(fault, position=position, raw=reader.since_mark())
                return True

    def _object(self, start: int) -> Scan[None]:
        """Read calls that are not in a list, up to the marker after them."""
        reader = self.reader
        position = start
        while True:
            reader.mark()
            scan = yield from scan_json(reader)
            if scan.fault:
                yield from reader.before(self._closing)
                self.refuse(scan.fault, position=position, raw=reader.since_mark())
                break
            item = FoundObject(scan, position, reader.since_mark())
            self.report([item], [Flaw("bad_layout", "calls must be in a list")])
            if not (yield from self._another()):
                break
            position = reader.offset
        yield from self._left_over()

    def _another(self) -> Scan[bool]:
        """Read up to another object that is not in a list; read nothing if there is none."""
        reader = self.reader
        reader.mark()
        yield from reader.spaces()
        yield from reader.accept(",")
        yield from reader.spaces()
        if self.close:
            follows = yield from reader.sees("{")
        else:
            # Without a marker after the calls, another object may be prose.
            follows = bool((yield from reader.ahead(self.siblings)))
        if not follows:
            reader.rewind()
        return follows
