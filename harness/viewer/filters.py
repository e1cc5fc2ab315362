"""The filter line: which samples are listed.

    score<1 outcome:unreachable ended_by:length bonus

Every word must hold. ``score`` is compared; ``outcome:`` looks at how calls and the request ended; ``key:`` at any
field of the sample; other words must occur in its text, in any case.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

from sfusion.harness.errors import HarnessError
from sfusion.harness.viewer.sample import Sample

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


class BadFilter(HarnessError):
    """A filter that cannot be read."""


@dataclass(frozen=True)
class Filter:
    """Conditions that all must hold."""

    scores: tuple[tuple[str, float], ...] = ()
    fields: tuple[tuple[str, str], ...] = ()
    words: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True when everything passes."""
        return not (self.scores or self.fields or self.words)

    def accepts(self, sample: Sample) -> bool:
        """Whether a sample is listed."""
        for sign, wanted in self.scores:
            if sample.score is None or not _COMPARE[sign](sample.score, wanted):
                return False
        if not all(_has(sample, key, value) for key, value in self.fields):
            return False
        text = sample.text.lower() if self.words else ""
        return all(word in text for word in self.words)


def read_filter(text: str) -> Filter:
    """Read a filter line."""
    try:
        words = shlex.split(_SCORE.sub(r"score\1\2", text))
    except ValueError as error:
        raise BadFilter(f"the filter cannot be read: {error}") from error
    scores: list[tuple[str, float]] = []
    fields: list[tuple[str, str]] = []
    plain: list[str] = []
    for word in words:
        if compared := _SCORE.fullmatch(word):
            try:
                scores.append((compared[1], float(compared[2])))
            except ValueError:
                raise BadFilter(f"score is compared with {compared[2]!r}: a number was meant") from None
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
