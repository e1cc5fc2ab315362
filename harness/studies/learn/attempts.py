"""The calls and requests of a log, made ready to learn from: attempts put together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
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
