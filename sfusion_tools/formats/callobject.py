"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .format import Format
from .jsontext import (
    NOT_BEGUN,
    TOO_DEEP,
    UNCLOSED,
    Flaw,
    JsonScan,
    Loaded,
    TooDeepError,
    dump,
    load,
    scan_json,
)
from .literal import decode_json
from .streamparser import StreamParser, Tools
from .text_reader import Markers, Scan, markers_of


@dataclass(frozen=True, slots=True)
class FoundObject:
    """A complete JSON value found where a call belongs."""

    scan: JsonScan
    position: int
    raw: str


def read_arguments(value: Any) -> Loaded | Flaw:
    """Return the arguments as an object; an object that was encoded twice is decoded once more."""
    if isinstance(value, dict):
        return Loaded(value)
    try:
        inner = decode_json(value)[1] if isinstance(value, str) else None
    except TooDeepError:
        return TOO_DEEP
    if isinstance(inner, dict):
        message = "its arguments are an object inside a string; write the object itself"
        return Loaded(inner, (Flaw("double_encoded", message),))
    return Flaw(
        "arguments_not_object",
        f"its arguments are {_kind(value)}, not an object of named arguments",
    )


def load_arguments(scan: JsonScan) -> Loaded | Flaw:
    """Return the arguments that a complete scan consists of, or the flaw for which they must be
    refused."""
    loaded = load(scan)
    if isinstance(loaded, Flaw):
        return loaded
    read = read_arguments(loaded.value)
    return (
        read if isinstance(read, Flaw) else Loaded(read.value, (*loaded.repaired, *read.repaired))
    )


DOUBLED = Flaw("doubled_payload", "the call appears twice; it was made once")
UNESCAPED = Flaw("stray_text", "text follows its JSON; a quote inside it is probably not escaped")
"""JSON that looks complete may be the first half of a string that was closed too early, so the
call is refused."""
SIBLINGS = ('{"name', '{ "name', '{"arguments', '{"parameters', '{"type', "{'name")
"""How the next call begins. Inside a string the quotes would be escaped, so this is never part
of an argument."""
CLOSERS = re.compile(r"\}+")


class ObjectCallParser(StreamParser):
    """A parser for formats in which every call is a JSON object."""

    keys: ClassVar[tuple[str, str, str]] = ("name", "arguments", "id")
    """The keys of a call's name, arguments and id; without that of the name, an object has the
    name as its only key."""
    siblings: tuple[str, ...] = SIBLINGS
    signs: Markers
    """How another call begins, in formats in which a broken one may have swallowed it."""

    def report(
        self,
        found: Sequence[FoundObject],
        remarks: Sequence[Flaw] = (),
        *,
        crowded: Flaw | None = None,
    ) -> None:
        """Report the calls that were found together; ``crowded`` is the flaw if each should have
        had its own tag."""
        seen: set[Any] = set()
        for one in found:
            loaded = load(one.scan)
            if isinstance(loaded, Flaw):
                self.refuse(loaded, position=one.position, raw=one.raw)
                continue
            values = loaded.value if isinstance(loaded.value, list) else [loaded.value]
            if not values:
                self.refuse(
                    Flaw("empty_call", "its list is empty"), position=one.position, raw=one.raw
                )
            shared = (
                [crowded] if crowded and (isinstance(loaded.value, list) or len(found) > 1) else []
            )
            repaired = [*loaded.repaired, *remarks, *shared]
            for value in values:
                if shared:
                    key = _frozen(value)
                    if key in seen:
                        self.refuse(DOUBLED, position=one.position, raw=one.raw)
                        continue
                    seen.add(key)
                self._make(value, one, repaired)

    @staticmethod
    def extra_text(stray: str) -> Flaw:
        return Flaw(
            "stray_text",
            f"there is extra text next to its JSON ({stray.strip()[:40]!r}), which was ignored",
        )

    def refuse_up_to_sibling(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Refuse a broken object that has swallowed the next call, and go back to the beginning of
        that call.

        Return False and do nothing if no call begins in what was read since the mark.
        """
        reader = self.reader
        end = reader.offset
        yield from reader.peek(self.signs.longest)
        reader.rewind()
        nearest = 0 if scan.too_deep else reader.first(self.signs, end)
        if nearest:
            raw = reader.take(nearest - reader.offset)
            self.refuse(UNCLOSED if scan.truncated else fault, position=position, raw=raw)
        else:
            reader.seek(end)
        return bool(nearest)

    def _make(self, value: Any, found: FoundObject, repaired: Sequence[Flaw]) -> None:
        """Report a decoded value as a call, with its arguments under ``own_key`` or the other
        usual key."""
        position, raw = found.position, found.raw
        name_key, own_key, id_key = self.keys
        other_key = "parameters" if own_key == "arguments" else "arguments"
        if not isinstance(value, dict):
            flaw = Flaw(
                "not_an_object", f"it is {_kind(value)}, not an object with a name and {own_key}"
            )
            self.refuse(flaw, position=position, raw=raw)
            return
        if not name_key:
            value = _unfolded(value, own_key)
        name = value.get(name_key) or value.get("name")
        if not isinstance(name, str) or not name.strip():
            message = (
                f"its name is {_kind(name)}, not the name of a tool"
                if "name" in value
                else "its object has no name"
            )
            self.refuse(Flaw("missing_name", message), position=position, raw=raw)
            return
        keys = [key for key in (own_key, other_key) if key in value]
        read: Loaded | Flaw
        if not keys:
            read = Flaw(
                "missing_arguments",
                f'it has no {own_key}; write "{own_key}": {{}} if there are none',
            )
        elif len(keys) == 2 and value[own_key] != value[other_key]:
            read = Flaw(
                "ambiguous_arguments", f"it has both {own_key} and {other_key}, and they differ"
            )
        else:
            read = read_arguments(value[keys[0]])
        misplaced = keys[:1] == ["parameters"] and own_key == "arguments"
        moved = (
            [Flaw("other_key", "its arguments are under parameters; use arguments")]
            if misplaced
            else []
        )
        call_id = value[id_key] if isinstance(value.get(id_key), str) else None
        self.call(
            name, read, position=position, raw=raw, call_id=call_id, repaired=[*repaired, *moved]
        )


def _unfolded(value: dict[str, Any], own_key: str) -> dict[str, Any]:
    """Return the usual form of an object whose only key is the name, ``{"TOOL": {…}}``."""
    if len(value) != 1 or "name" in value:
        return value if "name" in value and own_key in value else {}
    ((name, arguments),) = value.items()
    return {"name": name, own_key: arguments}


class TaggedParser(ObjectCallParser):
    """Reads an object between two tags; accepts every valid object there, whatever else there
    is."""

    close: ClassVar[str]

    def __init__(self, form: Format, tools: Tools = None, *, in_think: bool = False) -> None:
        self._edges = markers_of(*self.openers, self.close)
        self._next = markers_of(*self.openers, self.close, "{", "[")
        super().__init__(form, tools, in_think=in_think)

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        start = reader.offset - len(marker)
        found: list[FoundObject] = []
        strays: list[str] = []
        refused = 0
        while True:
            yield from reader.spaces()
            place = reader.offset
            reader.mark()
            if closed := (yield from reader.accept(self.close)):
                break
            char = yield from reader.peek()
            if not char or (yield from reader.sees(marker)):
                break
            if char not in "{[":
                yield from reader.before(self._next, strays.append)
                continue
            scan = yield from scan_json(reader)
            if scan.fault is None:
                found.append(FoundObject(scan, place, reader.since_mark()))
                continue
            refused += 1
            if scan.truncated and self.close not in reader.since_mark():
                yield from self.skip_rest()
                self.refuse(scan.fault, position=start, raw=marker + reader.since_mark())
                break
            fault = UNCLOSED if scan.truncated else scan.fault
            reader.rewind()
            skipped, _ = yield from reader.text_before(self._edges)
            self.refuse(fault, position=start, raw=marker + skipped)
        self._report_found(found, refused, "".join(strays), start, marker, closed=closed)

    def _report_found(
        self,
        found: list[FoundObject],
        refused: int,
        stray: str,
        start: int,
        marker: str,
        *,
        closed: bool,
    ) -> None:
        ended = not closed and not self.reader.left
        if not found and not refused:
            if stray.strip():
                flaw = Flaw(
                    "no_call_object",
                    f"there is no object with a name and {self.keys[1]} after {marker}",
                )
            elif ended:
                flaw = NOT_BEGUN
            else:
                flaw = Flaw("empty_call", f"there is nothing between {marker} and {self.close}")
            self.refuse(flaw, position=start, raw=f"{marker}{stray}")
            return
        if '"' in stray:
            for one in found:
                self.refuse(UNESCAPED, position=one.position, raw=one.raw)
            return
        remarks = [self.extra_text(stray)] if stray.strip(" \n,;") else []
        if not closed:
            remarks.append(Flaw("missing_close", f"its {self.close} is missing"))
        crowded = Flaw("several_in_one_tag", f"every call needs its own {marker} and {self.close}")
        self.report(found, remarks, crowded=crowded)


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
            yield from self._one(start)
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
        empty = not text.strip()
        flaw = Flaw(
            "empty_call" if empty else "no_call_object", f"there is no list of calls after {marker}"
        )
        self.refuse(flaw, position=start, raw=marker + text)

    def _list(self, start: int, marker: str) -> Scan[None]:
        reader = self.reader
        elements = 0
        closed = False
        separated = True
        found: list[tuple[FoundObject, list[Flaw]]] = []
        while not closed:
            yield from reader.spaces()
            if (yield from reader.accept(",")):
                separated = True
                continue
            closed = yield from reader.accept("]")
            char = yield from reader.peek()
            if closed or not char or (yield from self._sees_edge()):
                break
            elements += 1
            remarks = [] if separated else [Flaw("bad_separator", "there is no comma before it")]
            separated = False
            position = reader.offset
            reader.mark()
            scan = yield from scan_json(reader)
            if scan.fault:
                closed = yield from self._broken(scan, scan.fault, position)
                separated = True
                continue
            one = FoundObject(scan, position, reader.since_mark())
            if (yield from reader.run(CLOSERS)):
                remarks.append(Flaw("stray_text", "it is followed by an extra }"))
            if not (yield from self._ends_well()):
                reader.waste(position)
                closed = yield from self._broken(scan, UNESCAPED, position)
            elif remarks and found and found[-1][0].scan.text == scan.text:
                self.refuse(DOUBLED, position=position, raw=one.raw)
            else:
                found.append((one, remarks))
        if not elements:
            kind = "empty_call" if closed else "truncated"
            self.refuse(
                Flaw(kind, f"there is no call in the list after {marker}"),
                position=start,
                raw=f"{marker} [",
            )
        missing = "" if closed else "the ] after the calls"
        if self.close:
            reader.mark()
            yield from reader.spaces()
            if not (yield from reader.accept(self.close)):
                reader.rewind()
                missing = missing or self.close
        if missing and found:
            found[-1][1].append(Flaw("missing_close", f"{missing} is missing"))
        nested = Flaw("bad_layout", "its list is nested in another list")
        for one, remarks in found:
            self.report([one], remarks, crowded=nested)

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
        if (scan.fault or not reader.exhausted) and (
            yield from self.refuse_up_to_sibling(scan, fault, position)
        ):
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

    def _one(self, start: int) -> Scan[None]:
        reader = self.reader
        reader.mark()
        scan = yield from scan_json(reader)
        if scan.fault is None:
            self.report(
                [FoundObject(scan, start, reader.since_mark())],
                [Flaw("bad_layout", "calls must be in a list")],
            )
            return
        yield from reader.before(markers_of(*self.openers))
        self.refuse(scan.fault, position=start, raw=reader.since_mark())


class ObjectFormat(Format):
    """A format in which every call is a JSON object."""

    parser: ClassVar[type[ObjectCallParser]]
    tag: ClassVar[tuple[str, str]] = ("", "")
    """The text before and after each object."""

    def write_object(self, name: str, arguments: str) -> str:
        """Write the object of a call, without the tag around it."""
        name_key, own_key, _ = self.parser.keys
        if not name_key:
            return f"{{{dump(name)}: {arguments}}}"
        return f'{{"{name_key}": {dump(name)}, "{own_key}": {arguments}}}'

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        before, after = self.tag
        return before + self.write_object(name, arguments) + after


def _frozen(value: Any) -> Any:
    """Return a hashable key that is equal for equal JSON values."""
    if isinstance(value, dict):
        return dict, frozenset((key, _frozen(inner)) for key, inner in value.items())
    return (list, *map(_frozen, value)) if isinstance(value, list) else value


_KINDS = {
    type(None): "null",
    bool: "true or false",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _kind(value: Any) -> str:
    return "an empty string" if value == "" else _KINDS.get(type(value), "a number")
