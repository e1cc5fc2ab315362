"""Calls written as JSON objects with a name and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .format import Format
from .jsontext import TOO_DEEP, UNCLOSED, Flaw, JsonScan, Loaded, TooDeepError, dump, load
from .literal import decode_json
from .streamparser import StreamParser
from .text_reader import Markers, Scan


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
    return Flaw("arguments_not_object", f"its arguments are {_kind(value)}, not an object of named arguments")


def load_arguments(scan: JsonScan) -> Loaded | Flaw:
    """Return the arguments that a complete scan consists of, or the flaw for which they must be refused."""
    loaded = load(scan)
    if isinstance(loaded, Flaw):
        return loaded
    read = read_arguments(loaded.value)
    return read if isinstance(read, Flaw) else Loaded(read.value, (*loaded.repaired, *read.repaired))


SIBLINGS = ('{"name', '{ "name', '{"arguments', '{"parameters', '{"type', "{'name")
"""How the next call begins. Inside a string the quotes would be escaped, so this is never part of an argument."""
DOUBLED = Flaw("doubled_payload", "the call appears twice; it was made once")
UNESCAPED = Flaw("stray_text", "text follows its JSON; a quote inside it is probably not escaped")
"""JSON that looks complete may be the first half of a string that was closed too early, so the call is refused."""


class ObjectCallParser(StreamParser):
    """A parser for formats in which every call is a JSON object."""

    own_key: ClassVar[str] = "arguments"
    signs: ClassVar[Markers]
    """How another call begins, in formats in which a broken one may have swallowed it."""

    def report(
        self, found: Sequence[FoundObject], remarks: Sequence[Flaw] = (), *, crowded: Flaw | None = None
    ) -> None:
        """Report the calls that were found together; ``crowded`` is the flaw if each should have had its own tag."""
        seen: set[Any] = set()
        for one in found:
            loaded = load(one.scan)
            if isinstance(loaded, Flaw):
                self.refuse(loaded, position=one.position, raw=one.raw)
                continue
            values = loaded.value if isinstance(loaded.value, list) else [loaded.value]
            if not values:
                self.refuse(Flaw("empty_call", "its list is empty"), position=one.position, raw=one.raw)
            repaired = [*loaded.repaired, *remarks]
            if crowded and (isinstance(loaded.value, list) or len(found) > 1):
                repaired.append(crowded)
            for value in values:
                if crowded:
                    key = _frozen(value)
                    if key in seen:
                        self.refuse(DOUBLED, position=one.position, raw=one.raw)
                        continue
                    seen.add(key)
                self._make(value, one, repaired)

    @staticmethod
    def extra_text(stray: str) -> Flaw:
        return Flaw("stray_text", f"there is extra text next to its JSON ({stray.strip()[:40]!r}), which was ignored")

    def refuse_up_to_sibling(self, scan: JsonScan, fault: Flaw, position: int) -> Scan[bool]:
        """Refuse a broken object that has swallowed the next call, and go back to the beginning of that call.

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
        """Report a decoded value as a call, with its arguments under ``own_key`` or the other usual key."""
        position, raw = found.position, found.raw
        own_key = self.own_key
        other_key = "parameters" if own_key == "arguments" else "arguments"
        if not isinstance(value, dict):
            flaw = Flaw("not_an_object", f"it is {_kind(value)}, not an object with a name and {own_key}")
            self.refuse(flaw, position=position, raw=raw)
            return
        name = value.get("name")
        if not isinstance(name, str) or not name.strip():
            message = (
                f"its name is {_kind(name)}, not the name of a tool" if "name" in value else "its object has no name"
            )
            self.refuse(Flaw("missing_name", message), position=position, raw=raw)
            return
        keys = [key for key in (own_key, other_key) if key in value]
        read: Loaded | Flaw
        if not keys:
            read = Flaw("missing_arguments", f'it has no {own_key}; write "{own_key}": {{}} if there are none')
        elif len(keys) == 2 and value[own_key] != value[other_key]:
            read = Flaw("ambiguous_arguments", f"it has both {own_key} and {other_key}, and they differ")
        else:
            read = read_arguments(value[keys[0]])
        if isinstance(read, Flaw):
            self.refuse(read, position=position, raw=raw, name=name)
            return
        misplaced = keys[0] == "parameters" and own_key == "arguments"
        moved = [Flaw("other_key", "its arguments are under parameters; use arguments")] if misplaced else []
        call_id = value["id"] if isinstance(value.get("id"), str) else None
        repaired = [*repaired, *moved, *read.repaired]
        self.call(name, read.value, position=position, raw=raw, call_id=call_id, repaired=repaired)


class ObjectFormat(Format):
    """A format in which every call is a JSON object."""

    parser: ClassVar[type[ObjectCallParser]]
    tag: ClassVar[tuple[str, str]] = ("", "")
    """The text before and after each object."""

    def write_object(self, name: str, arguments: str) -> str:
        """Write the object of a call, without the tag around it."""
        return f'{{"name": {dump(name)}, "{self.parser.own_key}": {arguments}}}'

    def write_call(self, name: str, arguments: str, place: int = 0) -> str:
        before, after = self.tag
        return before + self.write_object(name, arguments) + after


def _frozen(value: Any) -> Any:
    """Return a hashable key that is equal for equal JSON values."""
    if isinstance(value, dict):
        return dict, frozenset((key, _frozen(inner)) for key, inner in value.items())
    return (list, *map(_frozen, value)) if isinstance(value, list) else value


_KINDS = {type(None): "null", bool: "true or false", str: "a string", list: "a list", dict: "an object"}


def _kind(value: Any) -> str:
    return "an empty string" if value == "" else _KINDS.get(type(value), "a number")
