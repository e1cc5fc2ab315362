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
_STEADY = 0.6
"""The share of waits during which as many of the same process are in flight as after them, from
which on each process has a limiter of its own (measured in simulated logs: at most 0.45 if
processes share one, and more if they do not, unless a permit is handed on for a tenth of the time
of a request)."""
_AS_STEADY = 0.95
"""The same compared with what all processes have in flight, which is as steady if each of them
always has all its permits in use (chosen)."""
_FEWEST_WAITS = 20
"""Waits from which on they say whose limiter it is (chosen)."""
_AT_ONCE = 0.001
"""Seconds after a beginning within which the end that it waited for may be noted (chosen)."""


@dataclass(frozen=True, slots=True)
class PermitWaits:
    """How many requests the client lets through at a time, and what that cost."""

    limit: int
    """Of all processes together."""
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
    processes: int = 1
    """How many have a limiter of their own; 1 if all share one."""
    least: int = 0
    """The lowest limit of such a process."""
    most: int = 0
    """The highest one."""

    @property
    def evidence(self) -> str:
        requests = counted(self.of, "request")
        if self.pace:
            how = f"and began {1 / self.pace:.3g} s after the one before"
        elif self.processes > 1:
            how = f"with {self._of_each} of the same process in flight, whatever others did"
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
        elif self.processes > 1:
            own = f"rate_limit {in_each(self._of_each, self.processes)} ({self.limit} in all)"
        else:
            own = f"rate_limit {self.limit}"
        return (
            f"limited by the client's own {own}: {self.share:.0%} of the time is waits for a permit"
        )

    @property
    def _of_each(self) -> str:
        return f"{self.least}" if self.least == self.most else f"{self.least} to {self.most}"

    @property
    def weight(self) -> float:
        return self.share * min(1.0, self.each / _LONG_WAIT)


def in_each(limit: int | str, processes: int) -> str:
    """Name the limit to set in each of several processes."""
    return f"{limit} in each of {processes} processes"


def find_permit_waits(
    requests: Sequence[TimedAttempt], in_vain: Sequence[float] = ()
) -> PermitWaits | None:
    """None if nothing waited; calls that got no permit waited ``in_vain``."""
    waits = [request.attempt.waited for request in requests if request.attempt.waited > WAITED]
    if not waits and not in_vain:
        return None
    pace, burst = _pace(requests)
    limits = _find_limits(requests)
    total = sum(waits) + sum(in_vain)
    spent = sum(request.seconds for request in requests)
    return PermitWaits(
        limit=limits.in_all,
        waited=len(waits),
        of=len(requests),
        median=statistics.median(waits or in_vain),
        share=total / (total + spent),
        each=total / max(len(requests), 1),
        without=len(in_vain),
        pace=pace,
        burst=burst,
        processes=1 if pace else limits.processes,
        least=limits.least,
        most=limits.most,
    )


@dataclass(frozen=True, slots=True)
class _Limits:
    """The limits of processes, or the one that they share."""

    least: int
    most: int
    processes: int
    in_all: int


def _find_limits(requests: Sequence[TimedAttempt]) -> _Limits:
    """Find out how many requests go through at a time, and whether each process counts its own."""
    workers: dict[str, list[TimedAttempt]] = {}
    for request in requests:
        workers.setdefault(request.worker, []).append(request)
    limits = {worker: _limit(own) for worker, own in workers.items() if _waited(own)}
    if len(limits) < 2 or not _have_own_limiters(requests, list(workers.values())):
        limit = _limit(requests)
        return _Limits(least=limit, most=limit, processes=1, in_all=limit)
    # A process that was started again has another name, so not all of them ran side by side; those
    # that never waited did not show their limit.
    usual = statistics.median_low(limits.values())
    spans = {worker: (own[0].began, own[-1].began) for worker, own in workers.items()}
    permits = [span for worker, span in spans.items() for _ in range(limits.get(worker, usual))]
    alive = InFlight(spans.values())
    return _Limits(
        least=min(limits.values()),
        most=max(limits.values()),
        processes=alive.lasting_peak(alive),
        in_all=InFlight(permits).lasting_peak(alive),
    )


def _have_own_limiters(
    requests: Sequence[TimedAttempt], of_workers: Sequence[Sequence[TimedAttempt]]
) -> bool:
    """Does each process have a limiter of its own, clearly?

    As many requests are in flight in the middle of a wait as right after it: of the same process if
    that has a limiter of its own, of all processes if they share one.
    """
    waits = len(_waited(requests))
    steady = sum(map(_steady_waits, of_workers))
    return (
        waits >= _FEWEST_WAITS
        and steady >= _STEADY * waits
        and steady >= _AS_STEADY * _steady_waits(requests)
    )


def _steady_waits(requests: Sequence[TimedAttempt]) -> int:
    """Return during how many waits as many of these requests were in flight as after them."""
    busy = _busy(requests)
    return sum(
        busy.after(request.began - request.attempt.waited / 2)
        == busy.after(request.began + _AT_ONCE)
        for request in _waited(requests)
    )


def _limit(requests: Sequence[TimedAttempt]) -> int:
    """Return how many were in flight while others waited."""
    busy = _busy(requests)
    waited = _waited(requests)
    if len(waited) < _MANY * len(requests):
        return max(busy.peak, 1)
    waiting = InFlight(
        (request.began - request.attempt.waited, request.began) for request in waited
    )
    # A client may notice an end after the next beginning, so for a moment there seem to be more
    # than the limit.
    return max(busy.lasting_peak(waiting), 1)


def _busy(requests: Sequence[TimedAttempt]) -> InFlight:
    return InFlight((request.began, request.ended) for request in requests)


def _waited(requests: Sequence[TimedAttempt]) -> list[TimedAttempt]:
    return [request for request in requests if request.attempt.waited > WAITED]


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
