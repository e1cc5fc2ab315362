"""Values in raw text, which are read according to the tool's schema.

A parameter declared as a string is its text, whatever the text looks like. Any other type is JSON
(or its Python spelling). Without a declaration, text that is valid JSON is that value and any other
text is a string.

Raw text has no escapes, so only counting and what follows can distinguish the closing tag of a
value from one inside it. The balanced reading wins; if the tags do not balance, the value ends at
the first closing tag with a valid follower. A value never ends at a tag that is followed by
something else. A value that ends with a closing tag too many is refused, because the tag may be
doubled; so is one that may have swallowed the next argument.
"""

from __future__ import annotations

import difflib
import itertools
import json
import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sfusion_tools.bounded_input import nesting

from .jsontext import ENOUGH, TOO_DEEP, Flaw, Loaded, TooDeepError, dump
from .literal import NOT_PYTHON, decode_json, decode_python
from .text_reader import Markers, Scan, TextReader

NAME = re.compile(r"[\w.:/-]+")
_PATIENCE = 200
"""How many tags to look at after a possible end before giving up the call.

Chosen: a stream is not held back for long, and a program that prints tags has fewer.
"""
_TAG_NAME = re.compile(r"[^\w:]{0,4}([\w:.-]+)")
NEVER = math.inf


def read_value(text: str, types: frozenset[str], parameter: str) -> Loaded | Flaw:
    """Read ``text`` as a value of one of the declared types."""
    if types == {"string"}:
        return Loaded(text)
    try:
        is_json, value = decode_json(text.strip())
    except TooDeepError:
        return TOO_DEEP
    if is_json and (not types or _fits(value, types)):
        return Loaded(value)
    if not types:
        return Loaded(text)

    value = decode_python(text)
    if not isinstance(value, Flaw) and _fits(value, types):
        return Loaded(value)
    if "string" in types:
        return Loaded(text)
    if isinstance(value, Flaw) and value is not NOT_PYTHON:
        return Flaw(value.kind, f"in its parameter {parameter}, {value.message}")
    if nesting(text) > ENOUGH:
        return TOO_DEEP
    shown = json.dumps(text[:40], ensure_ascii=False)
    wanted = " or ".join(sorted(types))
    return Flaw("bad_value", f"its parameter {parameter} must be {wanted}, found {shown}")


_LOOKED_AT = 80
"""Characters after a closing tag in which another tag is expected. Chosen: a line of text."""


def misspelt(text: str, spec: TagSpec) -> bool:
    """Return whether a value may contain a misspelt tag, which would have ended it."""
    if _resembles(text.rstrip(), spec.closing):
        return True
    for tag in itertools.islice(spec.tags.pattern.finditer(text), _PATIENCE):
        if tag[0] == spec.closing:
            gap = spec.gap.match(text, tag.end())
            start = gap.end() if gap else tag.end()
            if _misspelt_follower(text[start : start + _LOOKED_AT], spec):
                return True
        else:
            before = text[: tag.start()].rstrip()
            if _resembles(before[-2 * len(spec.closing) :], spec.closing):
                return True
    return False


def _misspelt_follower(after: str, spec: TagSpec) -> bool:
    """Return whether nearly a valid tag comes after a closing one."""
    if after.startswith((*spec.followers, spec.closing)):
        return False
    if re.match(r"<[/|｜\w]", after):
        return True
    return any(_named_like(after, follower) for follower in spec.followers)


_NEARLY_THE_TAG = 0.82
_NEARLY_THE_NAME = 0.8
"""From which similarity on (difflib's ratio) a text counts as a misspelt tag, or its name.

Chosen: one or two wrong characters of a tag are found, another tag of the same format is not.
"""


def _resembles(text: str, tag: str) -> bool:
    """Return whether the end of a text is nearly the tag."""
    if text.endswith(tag):
        return False
    sizes = range(len(tag) - 2, len(tag) + 3)
    return _alike([text[-size:] for size in sizes], tag, _NEARLY_THE_TAG)


def begins_like(text: str, tag: str) -> bool:
    """Return whether a text begins with the tag, or nearly."""
    sizes = range(len(tag) - 2, len(tag) + 3)
    return _alike([text[:size] for size in sizes], tag, _NEARLY_THE_NAME)


def _named_like(text: str, tag: str) -> bool:
    """Return whether a text begins with the name of the tag, or nearly."""
    if _alike([text[: len(tag)]], tag, _NEARLY_THE_NAME):
        return True
    found = _TAG_NAME.match(text)
    wanted = _TAG_NAME.match(tag)
    if found is None or wanted is None:
        return False
    return _alike([found[1]], wanted[1], _NEARLY_THE_NAME)


def _alike(texts: Iterable[str], tag: str, least: float) -> bool:
    """Return whether one of the texts is that similar to the tag."""
    matcher = difflib.SequenceMatcher(None, b=tag)
    for text in texts:
        matcher.set_seq1(text)
        # Most texts are not, and their letters show it already.
        if matcher.quick_ratio() >= least and matcher.ratio() >= least:
            return True
    return False


def write_value(value: Any, types: frozenset[str]) -> str:
    """Return the text that ``read_value`` reads as ``value``, if there is one."""
    if isinstance(value, str):
        read = read_value(value, types, "")
        if isinstance(read, Loaded) and read.value == value:
            return value
    return dump(value)


_TYPES = {
    bool: {"boolean"},
    int: {"integer", "number"},
    float: {"number"},
    str: {"string"},
    list: {"array"},
    dict: {"object"},
}


def _fits(value: Any, types: frozenset[str]) -> bool:
    """Return whether a value has one of the types; null has every type."""
    return value is None or not types.isdisjoint(_TYPES[type(value)])


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

    @cached_property
    def markers(self) -> Markers:
        return Markers((self.opening, self.closing, *self.barriers))

    @cached_property
    def tags(self) -> Markers:
        """All tags that a value may not end without."""
        return Markers((self.opening, self.closing, *self.followers, *self.barriers))


@dataclass(frozen=True, slots=True)
class TagValue:
    """A value, or why there is none.

    The faults are ``truncated``, ``unclosed``, ``unbalanced`` and ``misspelt``.
    """

    text: str = ""
    fault: str = ""
    implied: bool = False
    """The closing tag was left out."""
    escaped: str = ""
    """The first escape of XML that was replaced in it."""


class _Tags:
    """The tags from the beginning of a value on.

    Values that do not end are tried one after the other, and each has to look at the tags up to the
    end of the text. So every tag is read once, and what a value asks about them takes no walk along
    the tags.
    """

    def __init__(self, begin: int) -> None:
        self.end = begin
        """Up to where the text was searched."""
        self.ended = False
        self.places = [begin - 1]
        self.good: list[int] = []
        """Which of the tags are closing ones with a valid follower."""
        self.barriers: list[int] = []
        self.not_closing: list[int] = []
        self.closes: dict[int, int] = {}
        """Which closing tag balances an opening one."""
        self.last_closing = 0
        self._open = [0]

    def read(self, reader: TextReader, spec: TagSpec) -> Scan[None]:
        """Read one more tag."""
        reader.seek(self.end)
        marker = yield from reader.until(spec.markers)
        self.end = reader.offset
        if marker is None:
            self.ended = True
            return
        number = len(self.places)
        self.places.append(self.end - len(marker))
        if marker == spec.closing:
            self.last_closing = number
            if self._open:
                self.closes[self._open.pop()] = number
            if (yield from reader.ahead(spec.followers, spec.gap)) is not None:
                self.good.append(number)
            return
        self.not_closing.append(number)
        if marker == spec.opening:
            self._open.append(number)
        else:
            self.barriers.append(number)

    def closing(self, own: int) -> float | None:
        """Return the tag that closes the value of the opening tag ``own``.

        NEVER if none does, None if that is not known yet.
        """
        last = _first(self.good, own + 1) + _PATIENCE
        balanced = self.closes.get(own, NEVER)
        # A closing tag without a valid follower may be part of the value, if only closing tags come
        # after it.
        good = _first(self.good, balanced)
        other = _first(self.not_closing, balanced)
        if good < other:
            return good if good <= last else NEVER
        is_hopeless = other < NEVER or len(self.places) > last + 1
        return NEVER if is_hopeless else None


def _first(numbers: Sequence[int], least: float) -> float:
    """Return the first of the sorted numbers that is not below ``least``, or NEVER."""
    at = bisect_left(numbers, least)
    return numbers[at] if at < len(numbers) else NEVER


def read_tag_value(reader: TextReader, spec: TagSpec) -> Scan[TagValue]:
    """Read a value and its closing tag; moves the reader's mark to the beginning of the value."""
    reader.mark()
    begin = reader.offset
    tags = reader.notes.get(spec)
    if tags is None or tags.end < begin:
        tags = reader.notes[spec] = _Tags(begin)
    own = bisect_left(tags.places, begin) - 1
    closing = tags.closing(own)
    while closing is None and not tags.ended:
        yield from tags.read(reader, spec)
        closing = tags.closing(own)
    reader.rewind()
    if closing is None:
        return _settle(reader, spec, tags, own)
    if closing == NEVER:
        return TagValue(fault="unclosed")
    return _ending(reader, spec, tags, int(closing))


def _settle(reader: TextReader, spec: TagSpec, tags: _Tags, own: int) -> TagValue:
    """The text ends and the tags do not balance: take the first possible reading, or none."""
    strayed = own in tags.closes
    first = _first(tags.good, own)
    if _first(tags.barriers, own) < first < NEVER:
        # The closing tag of this value is broken, and the one that was found belongs to a later
        # call.
        first = NEVER
        strayed = True
    if spec.implicit and not strayed:
        end = reader.search(spec.implicit)
        if end and (first == NEVER or end < tags.places[int(first)]):
            return TagValue(reader.take(end - reader.offset), implied=True)
    if first < NEVER:
        return _ending(reader, spec, tags, int(first))
    if strayed or tags.last_closing > own:
        return TagValue(fault="unclosed")
    return TagValue(fault="truncated")


def _ending(reader: TextReader, spec: TagSpec, tags: _Tags, closing: int) -> TagValue:
    """Read the value up to its closing tag, and the tag."""
    text = reader.take(tags.places[closing] - reader.offset)
    reader.take(len(spec.closing))
    return TagValue(fault="unbalanced") if _is_unbalanced(text, spec) else TagValue(text)


def _is_unbalanced(text: str, spec: TagSpec) -> bool:
    """Return whether the closing tag of a value may be doubled, or that of an argument missing."""
    opened = text.count(spec.opening)
    closed = text.count(spec.closing)
    if closed > opened:
        rest = text[text.rindex(spec.closing) + len(spec.closing) :]
        return not spec.gap.sub("", rest)
    return closed < opened and spec.opening in spec.followers and _may_open(text, spec.opening)


def _may_open(text: str, tag: str) -> bool:
    """Return whether a tag in a text may begin an argument.

    In the middle of a line it is more likely a text of the program, unless it is a special token.
    """
    if tag.startswith("<|"):
        return True
    return re.search(rf"^\s*{re.escape(tag)}", text, re.MULTILINE) is not None
