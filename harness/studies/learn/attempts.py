"""What one request of a log says: was it answered by a program, refused, lost, or never answered?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from sfusion.harness.studies.look.record import LoggedAttempt, LoggedCall
from sfusion_tools.outcome import Outcome

Known = Literal["order", "times", "durations"]
"""What a log says about time: nothing but the order of calls, when they came, or also how long they took."""
Ending = Literal["answered", "status", "sandbox_error", "bad_response", "hang", "lost", "unknown"]

PROGRAM = frozenset(one.value for one in Outcome if one.is_from_program)
INFRASTRUCTURE = frozenset(one.value for one in Outcome if one.is_infrastructure) - {Outcome.CANCELLED.value}
_CLIENT_LEFT = 499
_NEXT_ATTEMPT = 120.0
"""Seconds within which a request of the same name is another attempt."""


def known_of(calls: Iterable[LoggedCall]) -> Known:
    """What most calls of a log say about time."""
    calls = list(calls)
    if not all(call.timed for call in calls):
        return "order"
    return "durations" if sum(seconds_of(call) is not None for call in calls) > len(calls) / 2 else "times"


def ending_of(attempt: LoggedAttempt) -> Ending:
    """How a request ended, by its outcome, or by its status where a log knows no more."""
    if attempt.outcome in PROGRAM:
        return "answered"
    if attempt.status is not None and attempt.status != 200:
        return "unknown" if attempt.status == _CLIENT_LEFT or attempt.status < 400 else "status"
    match attempt.outcome:
        case "sandbox_error" | "bad_response":
            return attempt.outcome
        case "transport_timeout":
            return "hang"
        case "unreachable":
            return "lost"
        case None if attempt.status == 200:
            return "answered"
    return "unknown"


def outcome_of(record: LoggedCall) -> str | None:
    """How a call ended; what a log of requests does not say follows from the last status. None: not seen."""
    if record.outcome is not None or not record.attempts:
        return record.outcome
    last = record.attempts[-1]
    if last.outcome is not None:
        return last.outcome
    if last.status is None:
        return None
    if last.status < 400:
        return Outcome.OK.value
    if last.status == 429:
        return Outcome.THROTTLED.value
    if last.status == _CLIENT_LEFT:
        return Outcome.CANCELLED.value
    return Outcome.SANDBOX_ERROR.value if last.status >= 500 else Outcome.BAD_RESPONSE.value


def seconds_of(record: LoggedCall) -> float | None:
    """How long a call took, from its beginning to its end."""
    if record.seconds is not None or not record.attempts:
        return record.seconds
    last = record.attempts[-1]
    return None if last.seconds is None else last.began + last.seconds - record.began


def has_trouble(record: LoggedCall) -> bool:
    """True if a call failed for other reasons than its program, or was sent more than once."""
    return len(record.attempts) > 1 or outcome_of(record) in INFRASTRUCTURE or record.problem is not None


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """An attempt with its time since the beginning of the stretch that is learned from."""

    began: float
    ended: float
    """The end of the stretch if its own was not seen."""
    ending: Ending
    record: LoggedAttempt

    @property
    def seconds(self) -> float:
        return self.ended - self.began


def joined(records: Iterable[LoggedCall]) -> list[LoggedCall]:
    """Return calls in the order in which they began; requests that a server logged for one call become its attempts.

    Calls that a guard refused were never made.
    A request belongs to the call of the same name before it if that one was not answered and had ended.
    """
    calls: list[LoggedCall] = []
    latest: dict[str, int] = {}
    made = (record for record in records if not record.refused)
    for one in sorted(made, key=lambda record: record.began):
        place = latest.get(one.call) if one.source == "server" else None
        if place is not None and _goes_on(calls[place], one):
            first = calls[place]
            seconds = None if one.seconds is None else one.began + one.seconds - first.began
            attempts = first.attempts + one.attempts
            calls[place] = replace(first, seconds=seconds, outcome=one.outcome, attempts=attempts)
            continue
        latest[one.call] = len(calls)
        calls.append(one)
    return calls


def _goes_on(call: LoggedCall, request: LoggedCall) -> bool:
    took = seconds_of(call)
    if took is None or not call.attempts or ending_of(call.attempts[-1]) == "answered":
        return False
    return 0 <= request.began - call.began - took < _NEXT_ATTEMPT


def _attempts_of(record: LoggedCall) -> tuple[LoggedAttempt, ...]:
    """A log that knows only how calls ended says about each that there was a request."""
    if record.attempts or record.source == "client" or record.outcome in (None, "bad_arguments", "cancelled"):
        return record.attempts
    return (LoggedAttempt(record.began, record.seconds, outcome=record.outcome),)


def requests_of(records: Iterable[LoggedCall], start: float, end: float) -> list[LoggedRequest]:
    """All attempts in the order in which they began, with times counted from ``start``.

    One whose end was not seen is a hang if it began long before the log ended, else it was still under way. A server
    cannot tell a client that lost patience from a connection that broke; but no client gives up so early that many
    answers take longer.
    """
    found = ((one, record.source) for record in records for one in _attempts_of(record))
    attempts = sorted(found, key=lambda pair: pair[0].began)
    known = sorted(one.seconds for one, _ in attempts if one.seconds is not None)
    patience = 10 * known[int(0.95 * len(known))] + 1.0 if known else math.inf
    answers = sorted(one.seconds for one, _ in attempts if one.seconds is not None and ending_of(one) == "answered")
    usual = answers[int(0.9 * len(answers))] if answers else 0.0
    requests: list[LoggedRequest] = []
    for one, source in attempts:
        ending = ending_of(one)
        if ending == "hang" and source != "client" and one.seconds is not None and one.seconds < usual:
            ending = "lost"
        if one.seconds is None and one.status is None and ending == "unknown" and end - one.began > patience:
            ending = "hang"
        ended = end if one.seconds is None else one.began + one.seconds
        requests.append(LoggedRequest(one.began - start, ended - start, ending, one))
    return requests
