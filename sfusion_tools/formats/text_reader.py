"""Reads a text that arrives in pieces, so that a grammar can be written as if it were all there.

A scanner is a generator. Whenever it needs characters that have not come yet it yields, and goes on when there are
more. Nothing it finds depends on where the text was cut, which is why streaming and non-streaming agree.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import TypeVar

__all__ = ["Markers", "Scan", "TextReader"]

T = TypeVar("T")
Scan = Generator[None, None, T]
"""A scanner with a result: it yields when it needs more text."""

_LONGEST = 64
_SPACES = re.compile(r"[ \t\r\n]+")


class Markers:
    """A set of literal strings to look for, none of which is the beginning of another."""

    def __init__(self, literals: Iterable[str]) -> None:
        self.literals = tuple(dict.fromkeys(literals))
        self.pattern = re.compile("|".join(map(re.escape, self.literals)))
        self._longest = max(map(len, self.literals))
        self._beginnings = {literal[:size] for literal in self.literals for size in range(1, len(literal))}

    def unfinished(self, text: str, start: int) -> int:
        """How many characters at the end of ``text`` may become a marker."""
        for size in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[len(text) - size :] in self._beginnings:
                return size
        return 0


class TextReader:
    """The unread part of a text that is still growing."""

    def __init__(self) -> None:
        self.closed = False
        self._window = ""
        self._at = 0
        self._base = 0
        self._mark: int | None = None
        self._kept: list[str] = []

    @property
    def offset(self) -> int:
        """How many characters were read so far."""
        return self._base + self._at

    @property
    def left(self) -> int:
        """How many characters have come and are not read."""
        return len(self._window) - self._at

    def feed(self, chunk: str) -> None:
        """Append ``chunk``; what was read before is only kept if a mark was set."""
        if self._mark is not None:
            self._kept.append(self._window[max(self._mark - self._base, 0) : self._at])
        self._base += self._at
        self._window = self._window[self._at :] + chunk
        self._at = 0

    def close(self) -> None:
        """Say that nothing more will come."""
        self.closed = True

    def mark(self) -> None:
        """Remember this place, for ``since_mark`` and ``rewind``."""
        self._mark = self.offset
        self._kept = []

    def unmark(self) -> None:
        """Forget the marked place."""
        self._mark = None
        self._kept = []

    def since_mark(self) -> str:
        """The text read since the mark."""
        start = self.offset if self._mark is None else self._mark
        return "".join(self._kept) + self._window[max(start - self._base, 0) : self._at]

    def rewind(self) -> None:
        """Go back to the mark."""
        if self._mark is None:
            return
        if self._mark >= self._base:
            self._at = self._mark - self._base
        else:
            self._window = self.since_mark() + self._window[self._at :]
            self._base = self._mark
            self._at = 0
        self._kept = []

    def take(self, size: int) -> str:
        """Read ``size`` characters that are known to be there."""
        text = self._window[self._at : self._at + size]
        self._at += len(text)
        return text

    def peek(self, size: int = 1) -> Scan[str]:
        """Look at the next ``size`` characters, fewer at the end of the text."""
        while len(self._window) - self._at < size and not self.closed:
            yield
        return self._window[self._at : self._at + size]

    def sees(self, literal: str) -> Scan[bool]:
        """Is ``literal`` next? Decided as early as the text allows."""
        while True:
            ahead = self._window[self._at : self._at + len(literal)]
            if ahead == literal:
                return True
            if self.closed or not literal.startswith(ahead):
                return False
            yield

    def accept(self, literal: str) -> Scan[bool]:
        """Read ``literal`` if it is next."""
        found = yield from self.sees(literal)
        if found:
            self.take(len(literal))
        return found

    def run(self, pattern: re.Pattern[str]) -> Scan[str]:
        """Read as long as ``pattern``, a repeated class of characters, goes on."""
        parts: list[str] = []
        while True:
            match = pattern.match(self._window, self._at)
            if match:
                parts.append(self.take(match.end() - self._at))
            if self._at < len(self._window) or self.closed:
                return "".join(parts)
            yield

    def spaces(self) -> Scan[str]:
        """Read white space."""
        return self.run(_SPACES)

    def ahead(self, literals: Iterable[str], skip: re.Pattern[str] = _SPACES) -> Scan[str | None]:
        """Which of ``literals`` comes next behind white space: "" at the end of the text, None if none does.

        Nothing is read.
        """
        while True:
            gap = skip.match(self._window, self._at)
            rest = self._window[gap.end() if gap else self._at :][:_LONGEST]
            for literal in literals:
                if rest.startswith(literal):
                    return literal
            if self.closed:
                return None if rest else ""
            # A lone backslash may be the first half of a gap that is written as \\n.
            if rest and rest != "\\" and not any(literal.startswith(rest) for literal in literals):
                return None
            yield

    def line(self) -> Scan[str]:
        """Look at the rest of the line; nothing is read."""
        seen = 0
        while True:
            end = self._window.find("\n", self._at + seen)
            if end >= 0 or self.closed:
                return self._window[self._at : end if end >= 0 else len(self._window)]
            seen = self.left
            yield

    def until(self, markers: Markers, sink: Callable[[str], object], *, to_end: bool = True) -> Scan[str | None]:
        """Read up to and over the first marker and return it; the text before it goes to ``sink`` as it comes.

        At the end of the text the answer is None. With ``to_end`` off, what may be the beginning of a marker there
        stays unread.
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

    def before(self, markers: Markers, sink: Callable[[str], object]) -> Scan[str | None]:
        """Like ``until``, but the marker stays unread."""
        marker = yield from self.until(markers, sink)
        if marker is not None:
            self._at -= len(marker)
        return marker
