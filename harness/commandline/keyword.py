"""The expressions of ``-k``, with pytest's grammar: words, `and`, `or`, `not` and parentheses."""

from __future__ import annotations

import re
from collections.abc import Callable

from sfusion.harness.errors import BadOption

Matcher = Callable[[str], bool]
"""Says whether a name matches."""

_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")


def read_keyword(text: str) -> Matcher:
    """Read an expression; a word matches the names that contain it, in upper or lower case. No word matches all."""
    if not text.strip():
        return lambda name: True
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(found.start(1), found[1]) for found in _TOKEN.finditer(text)]
        self._next = 0

    def whole(self) -> Matcher:
        matcher = self._any()
        if self._peek() is not None:
            self._fail("expected `and`, `or` or the end")
        return matcher

    def _any(self) -> Matcher:
        parts = [self._all()]
        while self._take("or"):
            parts.append(self._all())
        return parts[0] if len(parts) == 1 else lambda name: any(part(name) for part in parts)

    def _all(self) -> Matcher:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return parts[0] if len(parts) == 1 else lambda name: all(part(name) for part in parts)

    def _one(self) -> Matcher:
        if self._take("not"):
            inner = self._one()
            return lambda name: not inner(name)
        if self._take("("):
            inner = self._any()
            if not self._take(")"):
                self._fail("expected `)`")
            return inner
        word = self._peek()
        if word is None or word in (")", "and", "or"):
            self._fail("expected a word, `not` or `(`")
        self._next += 1
        lowered = str(word).lower()
        return lambda name: lowered in name.lower()

    def _peek(self) -> str | None:
        return self._tokens[self._next][1] if self._next < len(self._tokens) else None

    def _take(self, token: str) -> bool:
        found = self._peek() == token
        self._next += found
        return found

    def _fail(self, expected: str) -> None:
        place = self._tokens[self._next][0] + 1 if self._peek() is not None else len(self._text) + 1
        found = "the end" if self._peek() is None else f"{self._peek()!r}"
        raise BadOption(f"-k {self._text!r}: {expected} at column {place}, found {found}")
