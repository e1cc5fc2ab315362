"""Scores answers to grade-school word problems."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

Method = Literal["strict", "flexible"]
METHODS: tuple[Method, ...] = ("strict", "flexible")

_STATED = re.compile(r"#### *(-?[$]?[0-9.,]*[0-9])")
_NUMBER = re.compile(r"-?[$]?[0-9][0-9,]*(?:\.[0-9]+)?|-?\.[0-9]+")


def extract_answer(text: str, method: Method = "strict") -> str | None:
    """Return the last answer in a text: strict requires ``####`` before it, flexible takes the last number."""
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}, found {method!r}")
    found = (_STATED if method == "strict" else _NUMBER).findall(text)
    return found[-1].replace(",", "").replace("$", "") if found else None


def compute_score(
    solution: str, ground_truth: str, method: Method = "strict", format_score: float = 0.0, score: float = 1.0
) -> float:
    """Return ``score`` for the right answer, ``format_score`` for a wrong one, 0 for none.

    Strict compares the text of the numbers, so 220000.0 is not 220000; flexible compares their values.
    """
    answer = extract_answer(solution, method)
    if answer is None:
        return 0.0
    truth = str(ground_truth).replace(",", "").replace("$", "").strip()
    if answer == truth or (method == "flexible" and _same_value(answer, truth)):
        return score
    return format_score


def _same_value(left: str, right: str) -> bool:
    try:
        return Decimal(left) == Decimal(right)
    except InvalidOperation:
        return False
