"""Regular expressions of scenarios, rules and scripts.

A stranger's may backtrack for years, so a search is timed.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import regex
from pydantic import BeforeValidator

from ..errors import SlowPattern

_LONGEST = 10_000
"""Characters of a pattern (chosen: more than anybody writes by hand)."""
_ADVICE = "write it without repeats inside repeats, such as (a|aa)+"


def check_pattern(value: Any) -> Any:
    """Return the value; raise ValueError if it is a text but not a regular expression."""
    if isinstance(value, str):
        if len(value) > _LONGEST:
            raise ValueError(f"a regular expression of more than {_LONGEST:,} characters")
        try:
            _compiled(value)
        except (regex.error, OverflowError, RecursionError, MemoryError) as error:
            raise ValueError(f"{value!r} is not a regular expression: {error}") from error
        if _backtracks(value):
            raise ValueError(f"the regular expression {value!r} backtracks: {_ADVICE}")
    return value


_PATIENCE = 1.0
"""Seconds for a pattern on one short text (chosen)."""
_LONGEST_TRIED = 50
"""Characters of a pattern whose letters are tried (chosen)."""
_TRIED = 200
"""How often a letter is repeated (chosen)."""
_TRIED_WORDS = 50
"""How often a word is repeated.

Less often: a good pattern may take as many steps as the square of its text is long.
"""


def _backtracks(pattern: str) -> bool:
    """Try short texts on which common mistakes take years.

    Others are found only when a search is given up.
    """
    word = "".join(sign for sign in pattern[:_LONGEST_TRIED] if sign.isalnum())
    try:
        for part in sorted({*"a0 ", *word, word[:-1]}):
            times = _TRIED if len(part) == 1 else _TRIED_WORDS
            _compiled(pattern).search(part * times + "\0", timeout=_PATIENCE)
    except TimeoutError:
        return True
    return False


class PatternSearches:
    """The searches of one server, script or model.

    A pattern that took too long once is given up.
    """

    def __init__(self) -> None:
        self._given_up: dict[str, SlowPattern] = {}

    def matches(self, pattern: str, text: str) -> bool:
        """Does the text contain a match?

        Raises SlowPattern if that takes too long to find out, and from then on at once.
        """
        if pattern in self._given_up:
            raise self._given_up[pattern]
        try:
            return find(pattern, text) is not None
        except SlowPattern as error:
            self._given_up[pattern] = error
            raise


_SECONDS = 2.0
"""For one search (chosen)."""


def find(pattern: str, text: str) -> tuple[int, int] | None:
    """Return where the first match starts and ends.

    Raise SlowPattern if that takes too long to find out.
    """
    try:
        match = _compiled(pattern).search(text, timeout=_SECONDS)
    except TimeoutError:
        raise SlowPattern(
            f"the regular expression {pattern!r} takes more than {_SECONDS:g} s "
            f"on a text of {len(text):,} characters; {_ADVICE}"
        ) from None
    return None if match is None else match.span()


@lru_cache(maxsize=256)  # chosen: more patterns than a scenario has
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


Pattern = Annotated[str, BeforeValidator(check_pattern)]
