"""How an episode ended: what its client returned or raised."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from math import isfinite
from typing import Any

from ...core.journal import Event
from ...errors import WorldError

_LONGEST_TEXT = 300
"""Characters that are kept of an answer, and of what was raised. Chosen."""
_MOST_ANSWERS = 100
"""Answers of an episode that are kept: as many as it has steps."""


def ending_of(work: asyncio.Future[Any]) -> Event:
    """Return what is noted of the end of an episode."""
    if not work.done():
        return {"end": "left_behind"}
    if work.cancelled():
        return {"end": "cancelled"}
    error = work.exception()
    if isinstance(error, WorldError):
        raise error
    if error is not None:
        text = str(error)[:_LONGEST_TEXT]
        return {"end": "raised", "raised": type(error).__name__, "text": text}
    return {"end": "returned", **read_result(work.result())}


def read_result(result: Any) -> Event:
    """Return score, outcome and answers of what a client returned for an episode."""
    if not isinstance(result, Mapping):
        return {"score": _number(result)}
    facts: Event = {"score": _number(result.get("score", result.get("reward")))}
    outcome = result.get("outcome")
    if outcome is not None:
        facts["outcome"] = str(outcome)[:_LONGEST_TEXT]
    answers = result.get("answers")
    if isinstance(answers, list | tuple):
        facts["answers"] = [_answer_text(answer) for answer in answers[:_MOST_ANSWERS]]
    return facts


def _answer_text(answer: Any) -> str | None:
    return None if answer is None else str(answer)[:_LONGEST_TEXT]


def _number(value: Any) -> float | None:
    """Return a score; None and NaN are none, nor is a whole number that no float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if isfinite(value) else None
    except OverflowError:
        return None
