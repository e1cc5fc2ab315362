"""Finds which limits of the client ended whole calls: the deadline of attempts, of everything, or of a wait."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sfusion.harness.studies.learn.attempts import LoggedRequest, ending_of, seconds_of
from sfusion.harness.studies.look.record import LoggedAttempt, LoggedCall
from sfusion_tools.sandbox.retry import RetryPolicy, is_order_to_wait
from sfusion_tools.wording import counted

_FEWEST = 3
"""Calls without a permit whose equal waits are no accident."""
_MOSTLY = 0.9
_SAME = 0.02
_MOMENT = 0.05
"""Seconds within which a busy client notices that a time is over."""
_CLEAR = 0.1
"""How much shorter than others a request must be, because a busy client may note the end of an answer late."""
_NEARLY_ALL = 0.95
_LONG = 2.0
"""How many times as long as nearly all answers a request must be under way to be more than a long program."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """A limit of the client, and the calls that it ended."""

    key: str
    """call_deadline, total_timeout or queue_timeout."""
    seconds: float
    calls: frozenset[LoggedCall]
    evidence: str


def find_call_limits(calls: Sequence[LoggedCall]) -> tuple[CallLimit, ...]:
    ended = [call for call in calls if call.source == "client" and seconds_of(call) is not None]
    deadline, queue = _deadline(ended) or _told_to_wait(ended), _no_permit(ended)
    if deadline is None or queue is None or deadline.key != queue.key:
        return tuple(one for one in (deadline, queue) if one is not None)
    return (replace(deadline, calls=deadline.calls | queue.calls, evidence=f"{deadline.evidence}; {queue.evidence}"),)


def _deadline(ended: Sequence[LoggedCall]) -> CallLimit | None:
    """A deadline ends calls after the same time and their requests after different ones, or earlier than others answer.

    If all requests were given up after the same time too, that is the timeout of a request.
    """
    cut = [call for call in ended if call.attempts and ending_of(call.attempts[-1]) == "hang"]
    in_all, without_waits = _reached(cut, ended, _total), _reached(cut, ended, _without_waits)
    if not in_all and not without_waits:
        return None
    if len(in_all) > len(without_waits):
        seconds, key, says = _total(in_all[0]), "total_timeout", "waits for permits included"
    else:
        seconds, key, says = _without_waits(without_waits[0]), "call_deadline", "waits for permits not included"
        if len(in_all) == len(without_waits):
            says += " (it may be total_timeout, which these calls do not tell apart)"
    ended_by = frozenset(in_all if key == "total_timeout" else without_waits)
    last = sorted(call.attempts[-1].seconds or 0.0 for call in ended_by)
    why = (
        f"{counted(len(ended_by), 'call')} given up after {seconds:.3g} s, {says}, whenever the last request began: "
        f"{last[0]:.3g} to {last[-1]:.3g} s before"
    )
    return CallLimit(key, seconds, ended_by, why)


def _told_to_wait(ended: Sequence[LoggedCall]) -> CallLimit | None:
    """A call that was told to wait gives up if its next attempt would begin after the deadline: no call took longer."""
    told = [call for call in ended if len(call.attempts) > 1 and call.outcome == "throttled"]
    gave_up = {call: asked for call in told if (asked := _order(call.attempts[-1])) is not None}
    if len(gave_up) < _FEWEST:
        return None
    longest = max(map(_without_waits, ended))
    policy = RetryPolicy()
    until = min(
        _without_waits(call) + asked + min(policy.cap, policy.base * 2.0 ** min(len(call.attempts) - 1, 60))
        for call, asked in gave_up.items()
    )
    if until < longest:  # other pauses, or a deadline for each call
        return None
    why = f"{counted(len(gave_up), 'call')} told to wait gave up: it is between {longest:.3g} and {until:.3g} s"
    return CallLimit("call_deadline", longest, frozenset(gave_up), why)


def _order(attempt: LoggedAttempt) -> float | None:
    return attempt.retry_after if is_order_to_wait(attempt.status, attempt.retry_after) else None


def _no_permit(ended: Sequence[LoggedCall]) -> CallLimit | None:
    """Calls that were never sent and waited for the same time; other calls last longer unless that bounds all of it."""
    queued = [call for call in ended if not call.attempts and call.outcome == "throttled"]
    if not queued:
        return None
    seconds = statistics.median(map(_total, queued))
    same = frozenset(call for call in queued if abs(_total(call) - seconds) <= _tolerance(seconds))
    if len(same) < max(_FEWEST, _MOSTLY * len(queued)):
        return None
    is_longest = max(map(_total, ended)) <= seconds + _tolerance(seconds)
    why = f"{counted(len(same), 'call')} got no permit within {seconds:.3g} s, and "
    if is_longest:
        return CallLimit("total_timeout", seconds, same, why + "no call took longer")
    return CallLimit("queue_timeout", seconds, same, why + "others took longer")


def without_cut(requests: Sequence[LoggedRequest], limits: Iterable[CallLimit]) -> list[LoggedRequest]:
    """How a request that the end of its call cut short would have ended is unknown.

    It hung all the same if it was under way for much longer than nearly all answers (others came when an outage
    ended), or if another one of its call hung.
    """
    answers = sorted(one.seconds for one in requests if one.ending == "answered")
    usual = answers[int(_NEARLY_ALL * len(answers))] if answers else 0.0
    cut = {
        call.attempts[-1]
        for limit in limits
        for call in limit.calls
        if call.attempts and len(_hangs([call])) == 1 and (call.attempts[-1].seconds or 0.0) < _LONG * usual
    }
    return [replace(one, ending="unknown") if one.record in cut else one for one in requests]


def _reached(
    cut: Sequence[LoggedCall], ended: Sequence[LoggedCall], measure: Callable[[LoggedCall], float]
) -> list[LoggedCall]:
    """Return the calls that were cut when they had taken as long as none took longer, the longest first."""
    most = max(map(measure, ended), default=0.0)
    near = sorted((call for call in cut if measure(call) >= most - _tolerance(most)), key=measure, reverse=True)
    took = [one.seconds or 0.0 for one in _hangs(near)]
    answers = (one.seconds or 0.0 for call in ended for one in call.attempts if ending_of(one) == "answered")
    others = max(max(took, default=0.0), max(answers, default=0.0))
    return near if took and others - min(took) > max(_CLEAR * others, _MOMENT) else []


def _hangs(calls: Iterable[LoggedCall]) -> list[LoggedAttempt]:
    return [one for call in calls for one in call.attempts if ending_of(one) == "hang"]


def _total(call: LoggedCall) -> float:
    return seconds_of(call) or 0.0


def _without_waits(call: LoggedCall) -> float:
    return _total(call) - sum(one.waited for one in call.attempts)


def _tolerance(seconds: float) -> float:
    return max(_SAME * seconds, _MOMENT)
