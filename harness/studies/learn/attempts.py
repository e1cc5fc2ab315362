"""The calls and requests of a log, made ready to learn from: attempts put together, and one clock for all workers."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from operator import itemgetter
from typing import Literal

from sfusion_tools.outcome import FAILURES, PROGRAM_OUTCOMES, Outcome
from sfusion_tools.record import ANSWERED, Attempt, Call

Known = Literal["order", "times", "durations"]
"""What a log says about time: nothing but the order of calls, when they came, or also how long they took."""
Ending = Literal["answered", "status", "sandbox_error", "bad_response", "hang", "lost", "unknown"]

SHORTEST = 1e-4
"""Seconds below which no duration is counted, so that each has a logarithm."""
_NEXT_ATTEMPT = 120.0
"""Seconds within which a request of the same name is another attempt."""


def known_of(calls: Iterable[Call]) -> Known:
    """What most calls of a log say about time."""
    calls = list(calls)
    if not all(call.timed for call in calls):
        return "order"
    return "durations" if sum(seconds_of(call) is not None for call in calls) > len(calls) / 2 else "times"


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
    if attempt.status is not None and attempt.status >= 400 and attempt.outcome is not Outcome.CANCELLED:
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

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def joined(records: Iterable[Call]) -> list[Call]:
    """Return calls in the order in which they began; requests that a server logged for one call become its attempts.

    Calls that a guard refused were never made.
    A request belongs to the call of the same name before it if that one was not answered and had ended.
    """
    calls: list[Call] = []
    latest: dict[str, int] = {}
    made = (record for record in records if not record.refused)
    for one in sorted(made, key=lambda record: record.began):
        place = latest.get(one.call) if one.source == "server" else None
        if place is not None and _goes_on(calls[place], one):
            first = calls[place]
            seconds = None if one.seconds is None else one.began + one.seconds - first.began
            later = one.began - first.began
            attempts = [*first.attempts, *(replace(sent, after=sent.after + later) for sent in one.attempts)]
            calls[place] = replace(first, seconds=seconds, outcome=one.outcome, attempts=attempts)
            continue
        latest[one.call] = len(calls)
        calls.append(one)
    return calls


def _goes_on(call: Call, request: Call) -> bool:
    took = seconds_of(call)
    if took is None or not call.attempts or ending_of(call.attempts[-1]) == "answered":
        return False
    return 0 <= request.began - call.began - took < _NEXT_ATTEMPT


def _attempts_of(record: Call) -> list[Attempt]:
    """A log that knows only how calls ended says about each that there was a request."""
    if record.attempts or record.source == "client" or record.outcome in (None, "bad_arguments", "cancelled"):
        return record.attempts
    return [Attempt(1, outcome=record.outcome, seconds=record.seconds)]


def requests_of(records: Iterable[Call], start: float, end: float) -> list[TimedAttempt]:
    """All attempts in the order in which they began, with times counted from ``start``.

    One whose end was not seen is a hang if it began long before the log ended, else it was still under way. A server
    cannot tell a client that lost patience from a connection that broke; but no client gives up so early that many
    answers take longer.
    """
    found = ((*record.span(one), one, record.source) for record in records for one in _attempts_of(record))
    attempts = sorted(found, key=itemgetter(0))
    known = sorted(one.seconds for _, _, one, _ in attempts if one.seconds is not None)
    patience = 10 * known[int(0.95 * len(known))] + 1.0 if known else math.inf
    answers = sorted(
        one.seconds for _, _, one, _ in attempts if one.seconds is not None and ending_of(one) == "answered"
    )
    usual = answers[int(0.9 * len(answers))] if answers else 0.0
    requests: list[TimedAttempt] = []
    for began, ended, one, source in attempts:
        ending = ending_of(one)
        if ending == "hang" and source != "client" and one.seconds is not None and one.seconds < usual:
            ending = "lost"
        if one.seconds is None and one.status is None and ending == "unknown" and end - began > patience:
            ending = "hang"
        requests.append(TimedAttempt(began - start, (end if ended is None else ended) - start, ending, one))
    return requests


_FEWEST = 20
_FEWEST_TROUBLED = 5
_APART = 0.1
"""The share of the time of a worker by which clocks must differ to be noticed."""
_SHORTEST = 2.0
_SAME = 0.2
"""The share of a difference within which two ways to see it agree."""


@dataclass(frozen=True, slots=True)
class _Worker:
    name: str
    began: float
    ended: float
    trouble: tuple[float, ...]
    """When its trouble began, was half over, and ended; empty if it had little."""


def with_one_clock(calls: Sequence[Call]) -> tuple[Sequence[Call], str]:
    """Return calls with the times of one clock as far as that can be known, and a remark where clocks differ.

    Clocks differ if one worker began, ended and had its trouble later than another by the same time. Where nothing
    failed, workers that began and ended later may have done so, and where they had trouble at different times for
    other reasons, that may have been so: this is only remarked.
    """
    by_worker: dict[str, list[Call]] = {}
    for call in calls:
        by_worker.setdefault(call.worker, []).append(call)
    workers = [_worker(name, own) for name, own in by_worker.items() if len(own) >= _FEWEST]
    if len(workers) < 2 or len({call.source for call in calls}) > 1 or not all(call.timed for call in calls):
        return calls, ""
    first = min(workers, key=lambda one: one.began)
    late = {one.name: one.began - first.began for one in workers}
    most = max(late.values())
    least = max(_SHORTEST, _APART * statistics.median(one.ended - one.began for one in workers))
    is_shifted = most >= least and all(
        _is_same(one.ended - first.ended, late[one.name]) for one in workers if late[one.name] >= least
    )
    troubled = [one for one in workers if one.trouble]
    # The trouble of one worker ended long before that of another began.
    are_apart = any(other.trouble[0] - one.trouble[2] >= least for one, other in permutations(troubled, 2))
    if (
        is_shifted
        and are_apart
        and all(
            _is_same(one.trouble[1] - troubled[0].trouble[1], late[one.name] - late[troubled[0].name])
            for one in troubled
        )
    ):
        moved = [replace(call, began=call.began - late.get(call.worker, 0.0)) for call in calls]
        return sorted(moved, key=lambda call: call.began), (
            f"the clocks of {len(workers)} workers differ by up to {most:.0f} s: each began, ended and had its trouble "
            "that much later than another; corrected"
        )
    if are_apart:
        return calls, (
            f"{len(troubled)} workers had their trouble at different times; if their clocks differ, what is said about "
            "when and for how long is wrong"
        )
    if is_shifted and len(troubled) < 2:
        return calls, (
            f"{len(workers)} workers began and ended up to {most:.0f} s apart; if they ran side by side, their clocks "
            "differ, and what is said about the load is wrong"
        )
    return calls, ""


def _worker(name: str, calls: Sequence[Call]) -> _Worker:
    troubled = sorted(call.began for call in calls if has_trouble(call))
    size = len(troubled)
    return _Worker(
        name,
        min(call.began for call in calls),
        max(call.began + (seconds_of(call) or 0.0) for call in calls),
        (troubled[size // 10], troubled[size // 2], troubled[-1 - size // 10]) if size >= _FEWEST_TROUBLED else (),
    )


def _is_same(one: float, other: float) -> bool:
    return abs(one - other) <= max(_SHORTEST, _SAME * abs(other))
