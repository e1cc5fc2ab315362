"""One difference between two answers, and how to show it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from sfusion.harness.terminal import printable

Kind = Literal[
    "no-answer",
    "http-status",
    "header-missing",
    "header-extra",
    "header-value",
    "header-order",
    "header-case",
    "not-json",
    "key-missing",
    "key-extra",
    "key-renamed",
    "key-order",
    "type",
    "length",
    "value",
    "text",
    "blanks",
    "number-form",
    "body-form",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

_SHOWN = 60
_BEFORE = 12


@dataclass(frozen=True)
class Difference:
    """What two servers answered in the same place."""

    probe: str
    place: str
    kind: Kind
    left: Any
    right: Any

    def shown(self, width: int = _SHOWN) -> tuple[str, str]:
        """Both values, one line each; long texts are cut to start shortly before they diverge."""
        left, right = _written(self.left), _written(self.right)
        if max(len(left), len(right)) <= width:
            return left, right
        same = 0
        while same < min(len(left), len(right)) and left[same] == right[same]:
            same += 1
        start = max(0, same - _BEFORE)
        return _cut(left, start, width), _cut(right, start, width)


def matches(place: str, pattern: str, *, below: bool = True) -> bool:
    """Does the pattern name the place, or one above it? ``[*]`` is any index, ``*`` any name."""
    steps = re.escape(pattern).replace(r"\[\*\]", r"\[\d+\]").replace(r"\*", r"[^.\[]*")
    return re.fullmatch(rf"{steps}(?:[.\[].*)?" if below else steps, place, re.DOTALL) is not None


def _written(value: Any) -> str:
    if value is None:
        return "null"
    return printable(json.dumps(value, ensure_ascii=False))


def _cut(text: str, start: int, width: int) -> str:
    part = text[start : start + width]
    return ("…" if start else "") + part + ("…" if len(text) > start + width else "")
