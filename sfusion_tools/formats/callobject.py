"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """Return the arguments of a complete scan, or the flaw for which they must be refused."""
    loaded = load(scan)
    if isinstance(loaded, Flaw):
        return loaded
    read = read_arguments(loaded.value)
    if isinstance(read, Flaw):
        return read
    return Loaded(read.value, (*loaded.repaired, *read.repaired))


DOUBLED = Flaw("doubled_payload", "the call appears twice; it was made once")
UNESCAPED = Flaw("stray_text", "text follows its JSON; a quote inside it is probably not escaped")
"""The call is refused: its JSON may be the first half of a string that was closed too early."""
SIBLINGS = ('{"name', '{ "name', '{"arguments', '{"parameters', '{"type', "{'name")
"""How the next call begins.

Inside a string the quotes would be escaped, so this is never part of an argument.
"""
CLOSERS = re.compile(r"\}+")


class ObjectCallParser(StreamParser):
    """A parser for formats in which every call is a JSON object."""

    keys: ClassVar[tuple[str, str, str]] = ("name", "arguments", "id")
    """The keys of a call's name, arguments and id.

    If the first is empty, the name itself is the only key of an object.
    """
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
        """Report the calls that were found together.

        ``crowded`` is the flaw if each of them should have had its own tag.
        """
        seen: set[Any] = set()
        for item in found:
            loaded = load(item.scan)
            if isinstance(loaded, Flaw):
                self.refuse(loaded, position=item.position, raw=item.raw)
                continue

            repaired = [*loaded.repaired, *remarks]
            in_list = isinstance(loaded.value, list)
            if crowded is None or not (in_list or len(found) > 1):
                self._report_values(loaded.value, item, repaired, seen=None)
            else:
                self._report_values(loaded.value, item, [*repaired, crowded], seen=seen)

    def _report_values(
        self, value: Any, item: FoundObject, repaired: Sequence[Flaw], *, seen: set[Any] | None
    ) -> None:
        """Report an object, or each element of a list, as a call.

        What is already in ``seen`` is refused.
        """
        values = value if isinstance(value, list) else [value]
        if not values:
            flaw = Flaw("empty_call", "its list is empty")
            self.refuse(flaw, position=item.position, raw=item.raw)
        for single in values:
            if seen is not None:
                key = _frozen(single)
                if key in seen:
                    self.refuse(DOUBLED, position=item.position, raw=item.raw)
                    continue
                seen.add(key)
            self._make(single, item, repaired)

    @staticmethod
    def extra_text(stray: str) -> Flaw:
        return Flaw(
            "stray_text",
            f"there is extra text next to its JSON ({stray.strip()[:40]!r}), which was ignored",
        )

    def refuse_up_to_sibling(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Refuse a broken object that has swallowed the next call, and go back to that call.

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
        """Report a decoded value as a call, or refuse it."""
        name_key, own_key, id_key = self.keys
        if not isinstance(value, dict):
            message = f"it is {_kind(value)}, not an object with a name and {own_key}"
            flaw = Flaw("not_an_object", message)
            self.refuse(flaw, position=found.position, raw=found.raw)
            return

        if not name_key:
            value = _unfolded(value, own_key)
        name = value.get(name_key) or value.get("name")
        if not isinstance(name, str) or not name.strip():
            message = "its object has no name"
            if "name" in value:
                message = f"its name is {_kind(name)}, not the name of a tool"
            flaw = Flaw("missing_name", message)
            self.refuse(flaw, position=found.position, raw=found.raw)
            return

        call_id = value.get(id_key)
        if own_key == "arguments" and own_key not in value and "parameters" in value:
            repaired = [*repaired, _OTHER_KEY]
        self.call(
            name,
            _arguments_of(value, own_key),
            position=found.position,
            raw=found.raw,
            call_id=call_id if isinstance(call_id, str) else None,
            repaired=repaired,
        )


_OTHER_KEY = Flaw("other_key", "its arguments are under parameters; use arguments")


def _arguments_of(value: dict[str, Any], own_key: str) -> Loaded | Flaw:
    """Read the arguments of an object, under ``own_key`` or the other usual key."""
    other_key = "parameters" if own_key == "arguments" else "arguments"
    both = own_key in value and other_key in value
    if both and _frozen(value[own_key]) != _frozen(value[other_key]):
        message = f"it has both {own_key} and {other_key}, and they differ"
        return Flaw("ambiguous_arguments", message)
    if own_key in value:
        return read_arguments(value[own_key])
    if other_key in value:
        return read_arguments(value[other_key])
    return Flaw(
        "missing_arguments",
        f'it has no {own_key}; write "{own_key}": {{}} if there are none',
    )


def _unfolded(value: dict[str, Any], own_key: str) -> dict[str, Any]:
    """Return the usual form of an object whose only key is the name, ``{"TOOL": {…}}``."""
    if len(value) == 1 and "name" not in value:
        ((name, arguments),) = value.items()
        return {"name": name, own_key: arguments}
    if "name" in value and own_key in value:
        return value
    return {}


@dataclass(slots=True)
class _TagContent:
    """What was read after an opening tag."""

    marker: str
    start: int
    found: list[FoundObject] = field(default_factory=list)
    stray: str = ""
    """Text between the objects."""
    refused: int = 0
    closed: bool = False


class TaggedParser(ObjectCallParser):
    """Reads an object between two tags; accepts every valid object there, whatever else is.

    Without a closing tag a call ends with its object, and what follows is content.
    """

    close: ClassVar[str]

    def __init__(self, form: Format, tools: Tools = None, *, in_think: bool = False) -> None:
        ends = (self.close,) if self.close else self.silent
        self._edges = markers_of(*self.openers, *ends)
        self._next = markers_of(*self._edges.literals, "{", "[")
        self._line = markers_of(*self._edges.literals, "\n", '"}')
        super().__init__(form, tools, in_think=in_think)

    def opened(self, marker: str) -> Scan[None]:
        reader = self.reader
        content = _TagContent(marker, reader.offset - len(marker))
        strays: list[str] = []
        while True:
            yield from reader.spaces()
            place = reader.offset
            reader.mark()
            content.closed = bool(self.close) and (yield from reader.accept(self.close))
            if content.closed:
                break
            char = yield from reader.peek()
            if not char or (yield from self._sees_opener()):
                break
            if char not in "{[":
                if not self.close:
                    break
                yield from reader.before(self._next, strays.append)
                continue

            scan = yield from scan_json(reader)
            if scan.fault is None:
                content.found.append(FoundObject(scan, place, reader.since_mark()))
                if self.close or not (yield from self._ends_itself(strays)):
                    continue
                break
            content.refused += 1
            if not (yield from self._skip_broken(scan, scan.fault, content)):
                break
        content.stray = "".join(strays)
        self._report_content(content)

    def _ends_itself(self, strays: list[str]) -> Scan[bool]:
        """Return whether a call without a closing tag ends here.

        It goes on if its JSON is the first half of a string that was closed too early.
        """
        reader = self.reader
        strays.append((yield from reader.run(CLOSERS)))
        if (yield from reader.ahead(self.siblings)):
            return False
        if (yield from reader.upcoming(self._line)) == '"}':
            yield from reader.before(self._edges, strays.append)
        return True

    def _sees_opener(self) -> Scan[bool]:
        """Return whether another call begins here, in any spelling of the opening tag."""
        for opener in self.openers:
            if (yield from self.reader.sees(opener)):
                return True
        return False

    def _skip_broken(self, scan: JsonScan, fault: Flaw, content: _TagContent) -> Scan[bool]:
        """Refuse a broken object and read up to the next tag; return whether there is more."""
        reader = self.reader
        ends = (self.close,) if self.close else self._edges.literals
        if scan.truncated and not any(end in reader.since_mark() for end in ends):
            yield from self.skip_rest()
            raw = content.marker + reader.since_mark()
            self.refuse(fault, position=content.start, raw=raw)
            return False
        if scan.truncated:
            fault = UNCLOSED
        reader.rewind()
        skipped, _ = yield from reader.text_before(self._edges)
        self.refuse(fault, position=content.start, raw=content.marker + skipped)
        return True

    def _report_content(self, content: _TagContent) -> None:
        """Report the calls of a tag, or why there is none."""
        if not content.found and not content.refused:
            raw = f"{content.marker}{content.stray}"
            self.refuse(self._why_empty(content), position=content.start, raw=raw)
            return
        if '"' in content.stray:
            for item in content.found:
                self.refuse(UNESCAPED, position=item.position, raw=item.raw)
            return

        remarks: list[Flaw] = []
        if content.stray.strip(" \n,;"):
            remarks.append(self.extra_text(content.stray))
        if self.close and not content.closed:
            remarks.append(Flaw("missing_close", f"its {self.close} is missing"))
        marks = " and ".join(filter(None, (content.marker, self.close)))
        message = f"every call needs its own {marks}"
        self.report(content.found, remarks, crowded=Flaw("several_in_one_tag", message))

    def _why_empty(self, content: _TagContent) -> Flaw:
        """Return why there is no call after an opening tag."""
        marker = content.marker
        if content.stray.strip():
            message = f"there is no object with a name and {self.keys[1]} after {marker}"
            return Flaw("no_call_object", message)
        if not content.closed and not self.reader.left:
            return NOT_BEGUN
        if not self.close:
            return Flaw("no_call_object", f"there is no object after {marker}")
        return Flaw("empty_call", f"there is nothing between {marker} and {self.close}")


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
        return before.replace("{name}", name) + self.write_object(name, arguments) + after


def _frozen(value: Any) -> Any:
    """Return a hashable key that is equal for equal JSON values."""
    if isinstance(value, dict):
        return dict, frozenset((key, _frozen(inner)) for key, inner in value.items())
    if isinstance(value, list):
        return (list, *map(_frozen, value))
    return (bool, value) if isinstance(value, bool) else value  # Python takes 1 for true


_KINDS = {
    type(None): "null",
    bool: "true or false",
    str: "a string",
    list: "a list",
    dict: "an object",
}


def _kind(value: Any) -> str:
    """Return what a value is, for messages."""
    return "an empty string" if value == "" else _KINDS.get(type(value), "a number")
