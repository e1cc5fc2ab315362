"""Filters of the sample list, as typed by the user:

    score<1 outcome:unreachable

A sample must meet every condition: comparisons of its score, and ``outcome:`` for how its calls or
its request ended.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from ...core.dumps.sample import Sample
from ...errors import BadFilter

_SCORE = re.compile(r"score\s*(<=|>=|!=|==|=|<|>)\s*(\S+)")
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
    outcomes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.scores or self.outcomes)

    def accepts(self, sample: Sample) -> bool:
        """Whether the sample meets every condition."""
        for sign, wanted in self.scores:
            if sample.score is None or not _COMPARE[sign](sample.score, wanted):
                return False
        tags = {tag.lower() for tag in sample.tags} if self.outcomes else set()
        return all(outcome in tags for outcome in self.outcomes)


def read_filter(text: str) -> Filter:
    scores: list[tuple[str, float]] = []
    outcomes: list[str] = []
    for word in _SCORE.sub(r"score\1\2", text).split():
        if compared := _SCORE.fullmatch(word):
            try:
                scores.append((compared[1], float(compared[2])))
            except ValueError:
                raise BadFilter(f"score is compared with {compared[2]!r}; give a number") from None
        elif word.lower().startswith("outcome:"):
            outcomes.append(word.lower().removeprefix("outcome:"))
        else:
            raise BadFilter(
                f"{word!r} is no condition; give some of score<1 and outcome:NAME (/ "
                "searches for text)"
            )
    return Filter(tuple(scores), tuple(outcomes))
