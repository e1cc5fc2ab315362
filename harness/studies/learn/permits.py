"""How long requests waited for permits of their own client, and for which limit."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfusion_tools.wording import counted

from .attempts import InFlight, TimedAttempt
from .distributions import rounded

WAITED = 0.02
"""Seconds from which on a wait is one (chosen)."""
_MANY = 0.05
"""The share of requests from which on waits say more about the limit than the most that were ever
in flight (chosen)."""
_LONG_WAIT = 0.1
"""Seconds for each request from which on waiting matters as much as failing (chosen)."""


@dataclass(frozen=True, slots=True)
class PermitWaits:
    """How many requests the client lets through at a time, and what that cost."""

    limit: int
    waited: int
    of: int
    median: float
    share: float
    """The share of the time of all requests and their waits."""
    each: float
    """Seconds of waiting for each request, on average."""
    without: int = 0
    """Calls that waited and got none."""
    pace: float | None = None
    """Requests per second, where the client has a limit of those and it is the one that lets
    requests wait."""
    burst: int = 1

    @property
    def evidence(self) -> str:
        requests = counted(self.of, "request")
        if self.pace:
            how = f"and began {1 / self.pace:.3g} s after the one before"
        else:
            how = f"with {self.limit} in flight"
        waited = (
            f"{self.waited:,} of {requests} waited for a permit, {self.median:.3g} s each, {how}"
        )
        return f"{waited}; {counted(self.without, 'call')} got none" if self.without else waited

    @property
    def says(self) -> str:
        if self.pace:
            own = f"requests_per_second {rounded(self.pace):g}"
        else:
            own = f"rate_limit {self.limit}"
        return (
            f"limited by the client's own {own}: {self.share:.0%} of the time is waits for a permit"
        )

    @property
    def weight(self) -> float:
        return self.share * min(1.0, self.each / _LONG_WAIT)


def find_permit_waits(
    requests: Sequence[TimedAttempt], in_vain: Sequence[float] = ()
) -> PermitWaits | None:
    """None if nothing waited; calls that got no permit waited ``in_vain``."""
    waits = [request.attempt.waited for request in requests if request.attempt.waited > WAITED]
    if not waits and not in_vain:
        return None
    busy = InFlight((request.began, request.ended) for request in requests)
    waiting = InFlight(
        (request.began - request.attempt.waited, request.began)
        for request in requests
        if request.attempt.waited > WAITED
    )
    # A client may notice an end after the next beginning, so for a moment there seem to be more
    # than the limit.
    limit = busy.lasting_peak(waiting) if len(waits) >= _MANY * len(requests) else busy.peak
    pace, burst = _pace(requests)
    total = sum(waits) + sum(in_vain)
    spent = sum(request.seconds for request in requests)
    return PermitWaits(
        limit=max(limit, 1),
        waited=len(waits),
        of=len(requests),
        median=statistics.median(waits or in_vain),
        share=total / (total + spent),
        each=total / max(len(requests), 1),
        without=len(in_vain),
        pace=pace,
        burst=burst,
    )


_EVENLY = 0.8
"""The share of requests that began at the same distance from the one before where a client has a
pace (chosen)."""
_FEWEST_PACED = 20
"""Gaps from which on their distance says something (chosen)."""
_SOME = 5
"""Requests of a pace, within whose time those beyond it came at once (chosen)."""


def _pace(requests: Sequence[TimedAttempt]) -> tuple[float | None, int]:
    """How many requests per second a client begins that lets the others wait, and how many at once
    after a pause."""
    begins = [request.began for request in requests]
    gaps = [b - a for a, b in pairwise(begins)]
    after_waits = sorted(
        gap
        for gap, request in zip(gaps, requests[1:], strict=True)
        if request.attempt.waited > WAITED
    )
    if len(after_waits) < _FEWEST_PACED or (usual := statistics.median(after_waits)) <= 0:
        return None, 1
    even = bisect_right(after_waits, 1.1 * usual) - bisect_left(after_waits, 0.9 * usual)
    if even < _EVENLY * len(after_waits):
        return None, 1
    at_once = max(
        bisect_right(begins, at + _SOME * usual) - place for place, at in enumerate(begins)
    )
    return 1 / usual, max(1, at_once - _SOME)
