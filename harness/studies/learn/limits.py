"""The limits that a client ran with, where a log shows several, and the throughput with each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.attempts import TimedAttempt
from sfusion.harness.studies.learn.in_flight import InFlight

_PARTS = 24
_FEWEST = 30
_WAITED = 0.02
_APART = 1.3
"""How many times as many in flight make it another limit."""


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """What requests did while at most so many were in flight, and others waited."""

    limit: int
    per_second: float
    """Requests answered."""
    requests: int


def limits_seen(requests: Sequence[TimedAttempt]) -> tuple[LimitSeen, ...]:
    """The limits in rising order; empty if there was only one, or if too little waited to tell."""
    size = len(requests)
    parts = [requests[size * k // _PARTS : size * (k + 1) // _PARTS] for k in range(_PARTS)]
    found: list[list[Sequence[TimedAttempt]]] = []
    limits: list[int] = []
    busy = InFlight((one.began, one.ended) for one in requests)
    for part in parts:
        if sum(one.attempt.waited > _WAITED for one in part) < len(part) / 2 or not part:
            continue
        counts = sorted(busy.after(one.began) for one in part)
        limit = max(1, counts[len(counts) // 2])
        near = next((place for place, one in enumerate(limits) if 1 / _APART < limit / one < _APART), None)
        if near is None:
            limits.append(limit)
            found.append([part])
        else:
            found[near].append(part)
    seen = [_seen(limit, parts) for limit, parts in sorted(zip(limits, found, strict=True), key=lambda pair: pair[0])]
    kept = tuple(one for one in seen if one.requests >= _FEWEST)
    return kept if len(kept) > 1 else ()


def _seen(limit: int, parts: Sequence[Sequence[TimedAttempt]]) -> LimitSeen:
    answered = sum(one.ending == "answered" for part in parts for one in part[1:])
    seconds = sum(part[-1].began - part[0].began for part in parts)
    return LimitSeen(limit, answered / seconds if seconds > 0 else 0.0, sum(map(len, parts)))
