"""Calls written as JSON objects with a name and arguments: reading one, and reporting those found together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from .jsontext import Flaw, JsonScan, Loaded, load
from .literal import decode_object
from .reader import Reader, Scan
from .streamparser import StreamParser

__all__ = [
    "DOUBLED",
    "SIBLINGS",
    "UNESCAPED",
    "CallObject",
    "Found",
    "ObjectCallParser",
    "Refusal",
    "next_object",
    "read_arguments",
    "read_call_object",
]


@dataclass(frozen=True, slots=True)
class CallObject:
    """A name, its arguments, and what was mended."""

    name: str
    arguments: dict[str, Any]
    mended: tuple[Flaw, ...] = ()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an object is no call, and whose call it would have been."""

    flaw: Flaw
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A complete JSON value in the place of a call."""

    scan: JsonScan
    position: int
    raw: str


def read_call_object(value: Any, own_key: str) -> CallObject | Refusal:
    """The call that a decoded value makes, with its arguments under ``own_key`` or under the other usual key."""
    if not isinstance(value, dict):
        return Refusal(Flaw("not_an_object", f"it is {_kind(value)}, not an object with a name and {own_key}"))
    if "name" not in value:
        return Refusal(Flaw("missing_name", "its object has no name"))
    name = value["name"]
    if not isinstance(name, str) or not name.strip():
        return Refusal(Flaw("missing_name", f"its name is {_kind(name)}, not the name of a tool"))
    other_key = "parameters" if own_key == "arguments" else "arguments"
    keys = [key for key in (own_key, other_key) if key in value]
    if not keys:
        message = f'it has no {own_key}; write "{own_key}": {{}} if there are none'
        return Refusal(Flaw("missing_arguments", message), name)
    if len(keys) == 2 and value[own_key] != value[other_key]:
        return Refusal(Flaw("ambiguous_arguments", f"it has both {own_key} and {other_key}, and they differ"), name)
    read = read_arguments(value[keys[0]])
    if isinstance(read, Flaw):
        return Refusal(read, name)
    mended = read.mended
    if keys[0] != own_key and own_key == "arguments":
        mended = (Flaw("other_key", f"its arguments stand under {keys[0]}; write {own_key}"), *mended)
    return CallObject(name, read.value, mended)


def read_arguments(value: Any) -> Loaded | Flaw:
    """Arguments as an object; an object that was encoded twice is decoded once more."""
    if isinstance(value, dict):
        return Loaded(value)
    if isinstance(value, str) and (inner := decode_object(value)) is not None:
        message = "its arguments are an object inside a string; write the object itself"
        return Loaded(inner, (Flaw("double_encoded", message),))
    return Flaw("arguments_not_object", f"its arguments are {_kind(value)}, not an object of named arguments")


SIBLINGS = ('{"name', '{ "name', '{"arguments', '{"parameters', '{"type', "{'name")
"""How the next call begins: inside a string its quotes would be escaped, so this is never part of an argument."""
DOUBLED = Flaw("doubled_payload", "the same call stands there twice; it was made once")
UNESCAPED = Flaw("stray_text", "there is more text behind its JSON, as if a quote in it were not escaped")
"""What looks complete may be the first half of a string that was closed too early, so it is not handed over."""


def next_object(reader: Reader, openers: Iterable[str]) -> Scan[int]:
    """Where behind the mark the next call begins, among what a broken one has swallowed; 0 if nowhere."""
    ahead = yield from reader.peek(max(map(len, SIBLINGS)))
    read = reader.since_mark()
    text = read + ahead
    found = (text.find(sign, 1) for sign in (*SIBLINGS, *openers))
    return min((at for at in found if 0 < at <= len(read)), default=0)


class ObjectCallParser(StreamParser):
    """A parser of a format in which every call is such an object."""

    own_key: ClassVar[str] = "arguments"

    def report(self, found: Sequence[Found], remarks: Sequence[Flaw] = (), *, crowded: Flaw | None = None) -> None:
        """Make the calls that were found together; ``crowded`` is what to say if they should not have been."""
        seen: list[Any] = []
        for one in found:
            loaded = load(one.scan)
            if isinstance(loaded, Flaw):
                self.refuse(loaded, position=one.position, raw=one.raw)
                continue
            values = loaded.value if isinstance(loaded.value, list) else [loaded.value]
            if not values:
                self.refuse(Flaw("empty_call", "its list is empty"), position=one.position, raw=one.raw)
            mended = [*loaded.mended, *remarks]
            if crowded and (isinstance(loaded.value, list) or len(found) > 1):
                mended.append(crowded)
            for value in values:
                if crowded and value in seen:
                    self.refuse(DOUBLED, position=one.position, raw=one.raw)
                    continue
                seen.append(value)
                self._make(value, one, mended)

    def _make(self, value: Any, found: Found, mended: Sequence[Flaw]) -> None:
        read = read_call_object(value, self.own_key)
        if isinstance(read, Refusal):
            self.refuse(read.flaw, position=found.position, raw=found.raw, name=read.name)
        else:
            self.call(
                read.name,
                read.arguments,
                position=found.position,
                raw=found.raw,
                call_id=value.get("id") if isinstance(value.get("id"), str) else None,
                mended=[*mended, *read.mended],
            )


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"a number ({json.dumps(value)[:20]})"
