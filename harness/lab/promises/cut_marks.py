"""Finds the marks in a tool message that say how much of it was cut, in whatever words a tool uses."""

from __future__ import annotations

import re
from itertools import islice

_WORDS = (
    "cut", "truncat", "omit", "elid", "remov", "shorten", "dropp", "clipp", "trimm", "skipp",
    "missing", "hidden", "more", "shown", "showing",
)  # fmt: skip
_WORD = rf"(?:{'|'.join(_WORDS)})"
_NUMBER = r"(?<![\d,_.])\d[\d,_.]{0,20}"
_MARK = re.compile(rf"{_NUMBER}[^\n\d]{{0,60}}?{_WORD}|{_WORD}[^\n\d]{{0,60}}?{_NUMBER}[^\n]{{0,40}}", re.IGNORECASE)
_MOST = 4


def cut_marks(text: str) -> list[str]:
    """Return the first few marks with a number."""
    lines = text.split("\n") if _has_word(text) else []
    marks = (found[0] for line in lines if _has_word(line) for found in _MARK.finditer(line))
    return list(islice(marks, _MOST))


def _has_word(text: str) -> bool:
    """Return whether the slow search is worthwhile."""
    lower = text.lower()
    return any(word in lower for word in _WORDS)


def numbers_in(mark: str) -> list[int]:
    """Return the whole numbers of a mark, read without separators of thousands."""
    return [int(re.sub(r"\D", "", number)) for number in re.findall(_NUMBER, mark)]
