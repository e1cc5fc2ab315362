"""Reads a text that arrives in pieces, so that a grammar can be written as if all of it were there.

A scanner is a generator that yields whenever it needs characters that have not arrived yet, and
continues when there are more. Its result does not depend on where the text was cut, so streaming
and non-streaming agree.

The time must stay linear in the text, however it is cut. So a scanner that waits has read
everything but the possible beginning of a marker; what it may have to give back it reads and then
rewinds. A scanner that may be tried again on text that it has read leaves a note in ``notes`` of
what it learnt, or counts what it reads in vain (``waste``) and is not tried again once the reader
is ``exhausted``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from functools import lru_cache
from typing import Any, TypeVar

_NOTHING_KNOWN = (0, None, -1)
"""A note of ``upcoming`` that fits no place."""

T = TypeVar("T")
Scan = Generator[None, None, T]
"""A scanner; it yields when it needs more text, and returns its result."""

_LONGEST = 64
"""How far ``ahead`` looks. Chosen: the markers of the bundled formats are shorter."""
_FREE = 200_000
"""How many characters may be read in vain in any text. Chosen: a small part of a second."""
_AGAIN = 4
"""How many more for each character of the text. Chosen: the time stays linear in its length."""
_SPACES = re.compile(r"[ \t\r\n]+")


class Markers:
    """A set of literal strings to search for, none of which is a prefix of another.

    None may be empty: it would be found everywhere, and a scanner that looks for it never advances.
    """

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(dict.fromkeys(literals))
        if not self.literals or "" in self.literals:
            raise ValueError("one of its markers is an empty text, which would be found everywhere")
        self.pattern = re.compile("|".join(map(re.escape, self.literals)))
        self.longest = max(map(len, self.literals))
        self._beginnings: set[str] = set()
        for literal in self.literals:
            self._beginnings.update(literal[:size] for size in range(1, len(literal)))

    def unfinished(self, text: str, start: int) -> int:
        """Return how many characters at the end of ``text`` may become a marker."""
        for size in range(min(self.longest - 1, len(text) - start), 0, -1):
            if text[len(text) - size :] in self._beginnings:
                return size
        return 0


@lru_cache(maxsize=1024)
def markers_of(*literals: str) -> Markers:
    """Return the markers of these strings, made once for all texts."""
    return Markers(literals)


def begins_any(text: str, literals: Iterable[str]) -> bool:
    """Return whether a text is the beginning of one of the literals."""
    return bool(text) and any(literal.startswith(text) for literal in literals)


def _drop(text: str) -> None:
    """The sink for text that is read and not needed."""


class TextReader:
    """The unread part of a text that is still growing."""

    def __init__(self) -> None:
        self.closed = False
        self.notes: dict[Any, Any] = {}
        """What scanners know about positions, so that they need not read the same text again."""
        self._window = ""
        self._at = 0
        self._base = 0
        self._mark: int | None = None
        self._kept: list[str] = []
        self._wasted = 0

    @property
    def offset(self) -> int:
        """The number of characters read so far."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """The number of characters that have arrived but were not read."""
        return len(self._window) - self._at

    @property
    def exhausted(self) -> bool:
        """Whether so much was read in vain that nothing may be tried again."""
        return self._wasted > _FREE + _AGAIN * self.offset

    def waste(self, start: int) -> None:
        """Count the text from ``start`` up to here, which will be read again."""
        self._wasted += self.offset - start

    def feed(self, chunk: str) -> None:
        """Append ``chunk``; text that was read before is only kept if a mark is set."""
        if self._mark is not None:
            self._kept.append(self._window[max(self._mark - self._base, 0) : self._at])
        self._base += self._at
        self._window = self._window[self._at :] + chunk
        self._at = 0

    def close(self) -> None:
        """Declare that the text is complete."""
        self.closed = True

    def mark(self) -> None:
        """Remember this position, for ``since_mark`` and ``rewind``."""
        self._mark = self.offset
        self._kept = []

    def unmark(self) -> None:
        self._mark = None
        self._kept = []

    def since_mark(self) -> str:
        start = self.offset if self._mark is None else self._mark
        return "".join(self._kept) + self._window[max(start - self._base, 0) : self._at]

    def rewind(self) -> None:
        """Go back to the mark."""
        if self._mark is not None:
            self.seek(self._mark)

    def seek(self, offset: int) -> None:
        """Go to any position between the mark and the end of what has arrived."""
        back: list[str] = []
        while offset < self._base:
            back.append(self._kept.pop())
            self._base -= len(back[-1])
        if back:
            self._window = "".join(reversed(back)) + self._window
        self._at = offset - self._base

    def take(self, size: int) -> str:
        """Read ``size`` characters, which must have arrived."""
        text = self._window[self._at : self._at + size]
        self._at += len(text)
        return text

    def peek(self, size: int = 1) -> Scan[str]:
        """Return the next ``size`` characters, fewer at the end, without reading them."""
        while len(self._window) - self._at < size and not self.closed:
            yield
        return self._window[self._at : self._at + size]

    def sees(self, literal: str) -> Scan[bool]:
        """Return whether ``literal`` comes next, as soon as that is certain."""
        while True:
            ahead = self._window[self._at : self._at + len(literal)]
            if ahead == literal:
                return True
            if self.closed or not literal.startswith(ahead):
                return False
            yield

    def accept(self, literal: str) -> Scan[bool]:
        """Read ``literal`` if it comes next."""
        found = yield from self.sees(literal)
        if found:
            self.take(len(literal))
        return found

    def run(self, pattern: re.Pattern[str]) -> Scan[str]:
        """Read while the characters match ``pattern``, a repeated character class."""
        parts: list[str] = []
        while True:
            match = pattern.match(self._window, self._at)
            if match:
                parts.append(self.take(match.end() - self._at))
            if self._at < len(self._window) or self.closed:
                return "".join(parts)
            yield

    def arrived(self, pattern: re.Pattern[str]) -> str | None:
        """Read ``pattern`` if what has arrived begins with it.

        Whether it matches must not depend on what follows.
        """
        match = pattern.match(self._window, self._at)
        return None if match is None else self.take(match.end() - self._at)

    def spaces(self) -> Scan[str]:
        return self.run(_SPACES)

    def ahead(self, literals: Iterable[str], skip: re.Pattern[str] = _SPACES) -> Scan[str | None]:
        """Return which of ``literals`` comes next after white space, without reading anything.

        "" at the end of the text, None if something else comes next.
        """
        return (yield from self._looking(self._ahead(literals, skip)))

    def _ahead(self, literals: Iterable[str], skip: re.Pattern[str]) -> Scan[str | None]:
        while True:
            yield from self.run(skip)
            rest = self._window[self._at : self._at + _LONGEST]
            for literal in literals:
                if rest.startswith(literal):
                    return literal
            if self.closed:
                return None if rest else ""
            # A lone backslash may be the first half of a gap written as \\n.
            if rest and rest != "\\" and not begins_any(rest, literals):
                return None
            yield

    def _looking(self, scan: Scan[T]) -> Scan[T]:
        """Run a scanner and go back to where it began."""
        start = self.offset
        marked = self._mark is not None
        if not marked:
            self.mark()
        found = yield from scan
        self.seek(start)
        if not marked:
            self.unmark()
        return found

    def upcoming(self, markers: Markers) -> Scan[str | None]:
        """Return the first marker ahead without reading anything; None if there is none."""
        here = self.offset
        note: tuple[int, str | None, int] = self.notes.get(markers, _NOTHING_KNOWN)
        since, marker, place = note
        if not since <= here <= place:
            marker, place = yield from self._looking(self._upcoming(markers))
            self.notes[markers] = (here, marker, place)
        return marker

    def _upcoming(self, markers: Markers) -> Scan[tuple[str | None, int]]:
        marker = yield from self.before(markers)
        return marker, self.offset

    def first(self, markers: Markers, last: int) -> int:
        """Return the offset of the first marker after this character, not beyond ``last``; or 0."""
        last -= self._base
        match = markers.pattern.search(self._window, self._at + 1, last + markers.longest)
        return self._base + match.start() if match and match.start() <= last else 0

    def search(self, pattern: re.Pattern[str]) -> int:
        """Return the offset after the first match ahead, in a text that is complete; 0 if none."""
        here = self.offset
        since, start, end = self.notes.get(pattern, (here + 1, 0, 0))
        is_passed = end > 0 and here > start
        if here < since or is_passed:
            match = pattern.search(self._window, self._at)
            start = self._base + match.start() if match else 0
            end = self._base + match.end() if match else 0
            self.notes[pattern] = (here, start, end)
        return int(end)

    def until(
        self, markers: Markers, sink: Callable[[str], object] = _drop, *, to_end: bool = True
    ) -> Scan[str | None]:
        """Read up to and including the first marker and return it.

        The text before it goes to ``sink`` as it arrives. Return None at the end of the text.
        Without ``to_end``, a possible beginning of a marker there stays unread.
        """
        while True:
            match = markers.pattern.search(self._window, self._at)
            if match:
                if match.start() > self._at:
                    sink(self.take(match.start() - self._at))
                return self.take(match.end() - match.start())
            held = 0 if self.closed and to_end else markers.unfinished(self._window, self._at)
            size = len(self._window) - self._at - held
            if size > 0:
                sink(self.take(size))
            if self.closed:
                return None
            yield

    def before(self, markers: Markers, sink: Callable[[str], object] = _drop) -> Scan[str | None]:
        """Like ``until``, but the marker stays unread."""
        marker = yield from self.until(markers, sink)
        if marker is not None:
            self._at -= len(marker)
        return marker

    def text_before(self, markers: Markers) -> Scan[tuple[str, str | None]]:
        """Read up to the first marker; return the text before it, and the marker or None."""
        parts: list[str] = []
        marker = yield from self.before(markers, parts.append)
        return "".join(parts), marker
