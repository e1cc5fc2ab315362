"""Calls of made-up logs, with the absolute times of their attempts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt, Call


def attempt_at(
    began: float,
    seconds: float | None,
    endpoint: str = "",
    status: int | None = None,
    outcome: str | None = None,
    waited: float = 0.0,
    fault: str | None = None,
    **rest: Any,
) -> Attempt:
    """Return an attempt for ``call_at``: ``after`` is when it began."""
    ended = None if outcome is None else Outcome(outcome)
    return Attempt(
        1, endpoint, ended, status, "", False, waited, seconds, began, fault=fault, **rest
    )


def call_at(
    call: str,
    began: float,
    seconds: float | None,
    source: str = "client",
    outcome: str | None = None,
    worker: str = "",
    attempts: Iterable[Attempt] = (),
    problem: str | None = None,
    **rest: Any,
) -> Call:
    """Return a call whose attempts have absolute times until now."""
    made = [
        replace(one, number=number, after=one.after - began)
        for number, one in enumerate(attempts, 1)
    ]
    ended = None if outcome is None else Outcome(outcome)
    return Call(call, began, seconds, source, ended, worker, made, problem, **rest)
