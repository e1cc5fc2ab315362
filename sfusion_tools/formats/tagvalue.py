"""Values between an opening and a closing tag that may themselves contain such tags.

Raw text has no escapes, so only counting and what follows can distinguish the real closing tag from one inside the
value. The balanced reading wins; if the tags do not balance, the value ends at the first closing tag with a valid
follower. A value never ends at a tag that is followed by something else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .text_reader import Markers, Scan, TextReader

_PATIENCE = 200
"""How many tags to look at after a possible end before giving up the call, and how many unclosed ones before settling
for an implicit end: the time must stay linear when a model repeats itself for thousands of lines."""

__all__ = ["TagSpec", "TagValue", "read_tag_value"]


@dataclass(frozen=True)
class TagSpec:
    """The tags around a value, and what may follow the closing one."""

    opening: str
    closing: str
    followers: tuple[str, ...]
    barriers: tuple[str, ...] = ()
    """Tags that begin another call."""
    gap: re.Pattern[str] = re.compile(r"\s+")
    implicit: re.Pattern[str] | None = None
    """Matches the end of a value without a closing tag."""

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
    """Read a value and its closing tag; moves the reader's mark to the beginning of the value."""
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
            if depth == _PATIENCE and spec.implicit and not ends and spec.implicit.search(reader.since_mark()):
                return _settle(reader, spec, ends, strayed)


def _settle(reader: TextReader, spec: TagSpec, ends: Sequence[int], strayed: bool) -> TagValue:
    """The tags do not balance: take the first possible reading, or none."""
    whole = reader.since_mark()
    first = ends[0] if ends else None
    if first is not None and any(barrier in whole[:first] for barrier in spec.barriers):
        # The closing tag of this value is broken, and the one that was found belongs to a later call.
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
