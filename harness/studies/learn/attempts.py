"""The calls and requests of a log, made ready to learn from: attempts put together, and how many
were under way."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from operator import attrgetter
from typing import Literal

from sfusion_tools.outcome import FAILURES, PROGRAM_OUTCOMES, Outcome
from sfusion_tools.record import ANSWERED, Attempt, Call

PAUSE = 600.0
"""Seconds without any call that are no part of the work: a night, another job, or a clock that
jumped (chosen)."""
_COINCIDENCE = 0.01
"""The share of the time that makes a number more than a coincidence (chosen)."""


class InFlight:
    """A step function of time, made of spans from a beginning to an end."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        changes: list[tuple[float, int]] = []
        for began, ended in spans:
            changes.append((began, 1))
            changes.append((max(began, ended), -1))
        changes.sort()  # an end comes before a beginning at the same time
        self.times = [at for at, _ in changes]
        self.counts = list(accumulate(change for _, change in changes))
        self.peak = max(self.counts, default=0)
        self._integral = self.integral(float)

    def at(self, time: float) -> int:
        """The number just before a time."""
        place = bisect_left(self.times, time)
        return self.counts[place - 1] if place else 0

    def after(self, time: float) -> int:
        """The number just after a time."""
        place = bisect_right(self.times, time)
        return self.counts[place - 1] if place else 0

    def integral(self, speed: Callable[[int], float]) -> Callable[[float, float], float]:
        """Return what integrates a function of the number in flight, from one time to another."""
        steps = (
            (b - a) * speed(n) for (a, b), n in zip(pairwise(self.times), self.counts, strict=False)
        )
        sums = list(accumulate(steps, initial=0.0))

        def until(time: float) -> float:
            place = bisect_right(self.times, time) - 1
            if place >= 0:
                return sums[place] + (time - self.times[place]) * speed(self.counts[place])
            return 0.0

        return lambda began, ended: until(ended) - until(began)

    def lasting_peak(self, during: InFlight | None = None) -> int:
        """The highest number that was not only a moment's coincidence, while there is any
        ``during`` it."""
        spent = self._seconds(during)
        whole = sum(spent.values())
        so_far = 0.0
        for count, seconds in sorted(spent.items(), reverse=True):
            so_far += seconds
            if so_far > _COINCIDENCE * whole:
                return count
        return self.peak

    def time_from(self, count: float) -> float:
        """How long at least that many were in flight."""
        return sum(seconds for n, seconds in self._seconds().items() if n >= count)

    def _seconds(self, during: InFlight | None = None) -> dict[int, float]:
        """How long each number was in flight."""
        spent: dict[int, float] = {}
        for a, b in pairwise(sorted({*self.times, *(during.times if during else ())})):
            if during is None or during.after(a) > 0:
                count = self.after(a)
                spent[count] = spent.get(count, 0.0) + b - a
        return spent

    def mean_square(self, began: float, ended: float) -> float:
        """The average of the square over a span of time."""
        return self.integral(lambda count: float(count) ** 2)(began, ended) / (ended - began)

    def mean(self, began: float, ended: float) -> float:
        """The average over a span of time."""
        if ended <= began:
            return float(self.at(began))
        return self._integral(began, ended) / (ended - began)


_AT_ONCE = 0.001
"""Seconds within which a client may note an end and the next beginning in the wrong order
(chosen)."""


def loads_met(requests: Iterable[TimedAttempt]) -> dict[int, int]:
    """Return how many others were in flight when each request began, by its ``id``; of several that
    began at the same time, one after the other."""
    ends: list[float] = []
    loads: dict[int, int] = {}
    for request in requests:
        while ends and ends[0] <= request.began + _AT_ONCE:
            heapq.heappop(ends)
        loads[id(request)] = len(ends)
        heapq.heappush(ends, request.ended)
    return loads


Known = Literal["order", "times", "durations"]
"""What a log says about time: nothing but the order of calls, when they came, or also how long they
took."""
Ending = Literal["answered", "status", "sandbox_error", "bad_response", "hang", "lost", "unknown"]

SHORTEST = 1e-4
"""Seconds below which no duration is counted, so that each has a logarithm."""
_NEXT_ATTEMPT = 120.0
"""Seconds within which a request of the same name is another attempt (chosen)."""


def known_of(calls: Iterable[Call]) -> Known:
    """What most calls of a log say about time."""
    calls = list(calls)
    if not all(call.timed for call in calls):
        return "order"
    if sum(seconds_of(call) is not None for call in calls) > len(calls) / 2:
        return "durations"
    return "times"


_ENDINGS: dict[Outcome | None, Ending] = {
    Outcome.SANDBOX_ERROR: "sandbox_error",
    Outcome.BAD_RESPONSE: "bad_response",
    Outcome.TRANSPORT_TIMEOUT: "hang",
    Outcome.UNREACHABLE: "lost",
}


def ending_of(attempt: Attempt) -> Ending:
    """How a request ended, by its outcome, or by its status where a log knows no more."""
    if attempt.outcome in PROGRAM_OUTCOMES or attempt.kind == ANSWERED:
        return "answered"
    if (
        attempt.status is not None
        and attempt.status >= 400
        and attempt.outcome is not Outcome.CANCELLED
    ):
        return "status"
    return _ENDINGS.get(attempt.outcome, "unknown")


def outcome_of(record: Call) -> str | None:
    """How a call ended; an answer whose body is not in the log counts as ok. None: not seen."""
    if record.outcome is None:
        return Outcome.OK.value if record.kind == ANSWERED else None
    return record.outcome.value


def seconds_of(record: Call) -> float | None:
    """How long a call took, from its beginning to its end."""
    if record.seconds is not None or not record.attempts:
        return record.seconds
    last = record.attempts[-1]
    return None if last.seconds is None else last.after + last.seconds


def has_trouble(record: Call) -> bool:
    """True if a call failed for other reasons than its program, or was sent more than once."""
    return len(record.attempts) > 1 or outcome_of(record) in FAILURES or record.problem is not None


@dataclass(frozen=True, slots=True)
class TimedAttempt:
    """An attempt on the clock of the stretch that is learned from, with what became of it."""

    began: float
    ended: float
    """The end of the stretch if its own was not seen."""
    ending: Ending
    attempt: Attempt
    worker: str = ""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def joined(records: Iterable[Call]) -> list[Call]:
    """Return calls in the order in which they began; requests that a server logged for one call
    become its attempts.

    Calls that a guard refused were never made. A request belongs to the call of the same name
    before it if that one was not answered and had ended.
    """
    calls: list[Call] = []
    latest: dict[str, int] = {}
    made = (record for record in records if not record.refused)
    for record in sorted(made, key=lambda record: record.began):
        is_named = record.source == "server" and record.call
        place = latest.get(record.call) if is_named else None
        if place is not None and _goes_on(calls[place], record):
            first = calls[place]
            seconds = (
                None if record.seconds is None else record.began + record.seconds - first.began
            )
            later = record.began - first.began
            attempts = [
                *first.attempts,
                *(replace(sent, after=sent.after + later) for sent in record.attempts),
            ]
            calls[place] = replace(
                first, seconds=seconds, outcome=record.outcome, attempts=attempts
            )
            continue
        latest[record.call] = len(calls)
        calls.append(record)
    return calls


def _goes_on(call: Call, request: Call) -> bool:
    took = seconds_of(call)
    if took is None or not call.attempts or ending_of(call.attempts[-1]) == "answered":
        return False
    return 0 <= request.began - call.began - took < _NEXT_ATTEMPT


def _attempts_of(record: Call) -> list[Attempt]:
    """A log that knows only how calls ended says about each that there was a request."""
    if (
        record.attempts
        or record.source == "client"
        or record.outcome in (None, "bad_arguments", "cancelled")
    ):
        return record.attempts
    return [Attempt(1, outcome=record.outcome, seconds=record.seconds)]


def timed_requests(records: Iterable[Call], start: float, end: float) -> list[TimedAttempt]:
    """All attempts in the order in which they began, with times counted from ``start``.

    One whose end was not seen is a hang if it began long before the log ended, else it was still
    under way. A server cannot tell a client that lost patience from a connection that broke; but no
    client gives up so early that many answers take longer.
    """
    sent = []
    for record in records:
        for attempt in _attempts_of(record):
            began, ended = record.span(attempt)
            by_client = record.source == "client"
            sent.append(_Sent(began, ended, attempt, record.worker, by_client=by_client))
    sent.sort(key=attrgetter("began"))
    bounds = _Bounds.of([request.attempt for request in sent], end)
    return [
        TimedAttempt(
            began=request.began - start,
            ended=(end if request.ended is None else request.ended) - start,
            ending=_ending(request, bounds),
            attempt=request.attempt,
            worker=request.worker,
        )
        for request in sent
    ]


@dataclass(frozen=True, slots=True)
class _Sent:
    """An attempt with its time on the clock of the log."""

    began: float
    ended: float | None
    attempt: Attempt
    worker: str
    by_client: bool
    """The client logged it, not a server."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What requests without an end, or with an early one, are compared with."""

    end: float
    """Of the log."""
    patience: float
    """A request that began longer than this before the end of the log would have ended."""
    usual: float
    """Many answers take longer."""

    @classmethod
    def of(cls, attempts: Sequence[Attempt], end: float) -> _Bounds:
        timed = [attempt for attempt in attempts if attempt.seconds is not None]
        known = sorted(attempt.seconds or 0.0 for attempt in timed)
        answers = sorted(
            attempt.seconds or 0.0 for attempt in timed if ending_of(attempt) == "answered"
        )
        return cls(
            end=end,
            patience=10 * known[int(0.95 * len(known))] + 1.0 if known else math.inf,
            usual=answers[int(0.9 * len(answers))] if answers else 0.0,
        )


def _ending(request: _Sent, bounds: _Bounds) -> Ending:
    """Say how a request ended, also where its log does not."""
    ending = ending_of(request.attempt)
    seconds = request.attempt.seconds
    if seconds is None:
        is_silent = ending == "unknown" and request.attempt.status is None
        if is_silent and bounds.end - request.began > bounds.patience:
            return "hang"
    elif ending == "hang" and not request.by_client and seconds < bounds.usual:
        return "lost"
    return ending
