"""Regular expressions of scenarios, rules and scripts: a stranger's may backtrack for years, so a
search is timed."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

import regex
from pydantic import BeforeValidator

from ..errors import SlowPattern

_SECONDS = 2.0
_LONGEST = 10_000
_PATIENCE = 1.0
_TRIED = 200
_TRIED_WORDS = 50
"""Words are repeated less often: a good pattern may take as many steps as the square of its text is
long."""
_LONGEST_TRIED = 50
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


def _backtracks(pattern: str) -> bool:
    """Try short texts on which common mistakes take years; others are found only when a search is
    given up."""
    word = "".join(sign for sign in pattern[:_LONGEST_TRIED] if sign.isalnum())
    try:
        for part in sorted({*"a0 ", *word, word[:-1]}):
            times = _TRIED if len(part) == 1 else _TRIED_WORDS
            _compiled(pattern).search(part * times + "\0", timeout=_PATIENCE)
    except TimeoutError:
        return True
    return False


class PatternSearches:
    """The searches of one server, script or model: a pattern that took too long once is given up."""

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


def find(pattern: str, text: str) -> tuple[int, int] | None:
    """Return where the first match starts and ends; raise SlowPattern if that takes too long to
    find out."""
    try:
        match = _compiled(pattern).search(text, timeout=_SECONDS)
    except TimeoutError:
        raise SlowPattern(
            f"the regular expression {pattern!r} takes more than {_SECONDS:g} s on a text "
            f"of {len(text):,} "
            f"characters; {_ADVICE}"
        ) from None
    return None if match is None else match.span()


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern)


Pattern = Annotated[str, BeforeValidator(check_pattern)]
