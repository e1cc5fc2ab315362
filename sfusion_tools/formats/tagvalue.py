"""The text between an opening and a closing tag when the text itself may hold such tags.

Raw text has no escapes, so a closing tag inside a value can only be told from the real one by what follows it and by
counting. The balanced reading wins; where tags do not balance, the first closing tag with the right thing behind it
does. A value is never cut short at a tag that is followed by something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .text_reader import Markers, Scan, TextReader

_PATIENCE = 200
"""How many tags are looked at behind a possible end before the call is given up: a model that repeats itself for
thousands of lines must not cost the square of that."""

__all__ = ["TagSpec", "TagValue", "read_tag_value"]


@dataclass(frozen=True)
class TagSpec:
    """The tags around a value, and what may come behind the closing one."""

    opening: str
    closing: str
    followers: tuple[str, ...]
    barriers: tuple[str, ...] = ()
    """Tags that begin another call."""
    gap: re.Pattern[str] = re.compile(r"\s+")
    implicit: re.Pattern[str] | None = None
    """What ends a value whose closing tag was left out."""

    def markers(self) -> Markers:
        return Markers((self.opening, self.closing, *self.barriers))


@dataclass(frozen=True, slots=True)
class TagValue:
    """A value, or why there is none: ``truncated`` or ``unclosed``."""

    text: str = ""
    fault: str = ""
    implied: bool = False
    """The closing tag was left out."""


def read_tag_value(reader: TextReader, spec: TagSpec, markers: Markers) -> Scan[TagValue]:
    """Read a value and its closing tag; the reader's mark is moved to the beginning of the value."""
    reader.mark()
    begin = reader.offset
    depth = 1
    ends: list[int] = []
    strayed = False
    beyond = 0
    while True:
        marker = yield from reader.until(markers, _drop)
        if marker is None:
            return _settle(reader, spec, ends, strayed)
        if ends:
            beyond += 1
            if beyond > _PATIENCE:
                return _settle(reader, spec, [], strayed=True)
        if marker == spec.closing:
            depth -= 1
            follower = yield from reader.ahead(spec.followers, spec.gap)
            if follower is not None:
                size = reader.offset - begin - len(marker)
                if depth <= 0:
                    return TagValue(reader.since_mark()[:size])
                ends.append(size)
            elif depth <= 0:
                strayed = True
                depth = 1
        elif strayed:
            return _settle(reader, spec, [], strayed)
        elif marker == spec.opening:
            depth += 1


def _settle(reader: TextReader, spec: TagSpec, ends: Sequence[int], strayed: bool) -> TagValue:
    """Nothing balanced: take the first reading that holds by itself, or none."""
    whole = reader.since_mark()
    first = ends[0] if ends else None
    if first is not None and any(barrier in whole[:first] for barrier in spec.barriers):
        # The closing tag of this value was spoilt, and what looks like it belongs to a later call.
        first, strayed = None, True
    if spec.implicit and not strayed:
        match = spec.implicit.search(whole)
        if match and (first is None or match.end() < first):
            reader.rewind()
            reader.take(match.end())
            return TagValue(whole[: match.end()], implied=True)
    reader.rewind()
    if first is not None:
        reader.take(first + len(spec.closing))
        return TagValue(whole[:first])
    return TagValue(fault="unclosed" if strayed or spec.closing in whole else "truncated")


def _drop(text: str) -> None:
    del text
