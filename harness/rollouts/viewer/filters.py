"""Filters of the sample list, as typed by the user:

    score<1 outcome:unreachable ended_by:length bonus

A sample must meet every condition: comparisons of its score; ``outcome:`` for how its calls or its request ended;
``key:`` for any other field; anything else is text that it must contain, ignoring case.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from sfusion.harness.errors import BadFilter
from sfusion.harness.rollouts.viewer.sample import Sample

_SCORE = re.compile(r"score\s*(<=|>=|!=|==|=|<|>)\s*(\S+)")
_FIELD = re.compile(r"(\w+):(.*)", re.DOTALL)
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Filter:
    scores: tuple[tuple[str, float], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.scores or self.fields or self.words)

    def accepts(self, sample: Sample) -> bool:
        """Whether the sample meets every condition."""
        for sign, wanted in self.scores:
            if sample.score is None or not _COMPARE[sign](sample.score, wanted):
                return False
        if not all(_has(sample, key, value) for key, value in self.fields):
            return False
        text = sample.text.lower() if self.words else ""
        return all(word in text for word in self.words)


def read_filter(text: str) -> Filter:
    try:
        words = shlex.split(_SCORE.sub(r"score\1\2", text))
    except ValueError as error:
        raise BadFilter(f"malformed filter: {error}") from error
    scores: list[tuple[str, float]] = []
    fields: list[tuple[str, str]] = []
    plain: list[str] = []
    for word in words:
        if compared := _SCORE.fullmatch(word):
            try:
                scores.append((compared[1], float(compared[2])))
            except ValueError:
                raise BadFilter(f"score is compared with {compared[2]!r}; give a number") from None
        elif (named := _FIELD.fullmatch(word)) and not word.startswith(("http:", "https:")):
            fields.append((named[1].lower(), named[2].lower()))
        else:
            plain.append(word.lower())
    return Filter(tuple(scores), tuple(fields), tuple(plain))


def _has(sample: Sample, key: str, value: str) -> bool:
    if key == "outcome":
        return value in {tag.lower() for tag in sample.tags}
    for name, found in sample.fields.items():
        if name.lower() == key:
            return str(found).lower() == value if not isinstance(found, dict | list) else value in str(found).lower()
    return False
