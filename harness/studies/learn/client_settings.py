"""How the client behaved: its limits, its patience, its retries."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import Attempt, Call
from sfusion_tools.sandbox.retry import RETRIED_STATUSES, RetryPolicy, is_order_to_wait
from sfusion_tools.wording import counted

from .attempts import InFlight, TimedAttempt, ending_of, outcome_of, seconds_of
from .distributions import rounded
from .permits import find_permit_waits

_FEWEST = 3
"""Calls without a permit whose equal waits are no accident (chosen)."""
_MOSTLY = 0.9
"""The share of the calls without a permit that must have waited equally long (chosen)."""
_SAME = 0.02
"""The share by which equal times may differ (chosen)."""
_NOTICES_WITHIN = 0.05
"""Seconds within which a busy client notices that a time is over (chosen)."""
_CLEAR = 0.1
"""How much shorter than others a request must be, because a busy client may note the end of an
answer late (chosen)."""
_NEARLY_ALL = 0.95
"""The share of answers that are nearly all of them (chosen)."""
_LONG = 2.0
"""How many times as long as nearly all answers a request must be under way to be more than a
long program (chosen)."""


@dataclass(frozen=True, slots=True)
class CallLimit:
    """A limit of the client, and the calls that it ended."""

    key: str
    """call_deadline, total_timeout or queue_timeout."""
    seconds: float
    calls: frozenset[Call]
    evidence: str


def find_call_limits(calls: Sequence[Call]) -> tuple[CallLimit, ...]:
    ended = [call for call in calls if call.source == "client" and seconds_of(call) is not None]
    deadline = _deadline(ended) or _told_to_wait(ended)
    queue = _no_permit(ended)
    if deadline is None or queue is None or deadline.key != queue.key:
        return tuple(limit for limit in (deadline, queue) if limit is not None)
    return (
        replace(
            deadline,
            calls=deadline.calls | queue.calls,
            evidence=f"{deadline.evidence}; {queue.evidence}",
        ),
    )


def _deadline(ended: Sequence[Call]) -> CallLimit | None:
    """A deadline ends calls after the same time and their requests after different ones, or earlier
    than others answer.

    If all requests were given up after the same time too, that is the timeout of a request.
    """
    cut = [call for call in ended if call.attempts and ending_of(call.attempts[-1]) == "hang"]
    in_all = _reached(cut, ended, _total)
    without_waits = _reached(cut, ended, _without_waits)
    if not in_all and not without_waits:
        return None
    if len(in_all) > len(without_waits):
        seconds = _total(in_all[0])
        key = "total_timeout"
        says = "waits for permits included"
    else:
        seconds = _without_waits(without_waits[0])
        key = "call_deadline"
        says = "waits for permits not included"
        if len(in_all) == len(without_waits):
            says += " (it may be total_timeout, which these calls do not tell apart)"
    ended_by = frozenset(in_all if key == "total_timeout" else without_waits)
    last = sorted(call.attempts[-1].seconds or 0.0 for call in ended_by)
    why = (
        f"{counted(len(ended_by), 'call')} given up after {seconds:.3g} s, {says}, "
        "whenever the last request began: "
        f"{last[0]:.3g} to {last[-1]:.3g} s before"
    )
    return CallLimit(key, seconds, ended_by, why)


def _told_to_wait(ended: Sequence[Call]) -> CallLimit | None:
    """A call that was told to wait gives up if its next attempt would begin after the deadline: no
    call took longer."""
    told = [call for call in ended if len(call.attempts) > 1 and call.outcome == "throttled"]
    gave_up = {call: asked for call in told if (asked := _order(call.attempts[-1])) is not None}
    if len(gave_up) < _FEWEST:
        return None
    longest = max(map(_without_waits, ended))
    policy = RetryPolicy()
    until = min(
        _without_waits(call)
        + asked
        + min(policy.cap, policy.base * 2.0 ** min(len(call.attempts) - 1, 60))
        for call, asked in gave_up.items()
    )
    if until < longest:  # other pauses, or a deadline for each call
        return None
    why = (
        f"{counted(len(gave_up), 'call')} told to wait gave up: it is between "
        f"{longest:.3g} and {until:.3g} s"
    )
    return CallLimit("call_deadline", longest, frozenset(gave_up), why)


def _order(attempt: Attempt) -> float | None:
    return attempt.retry_after if is_order_to_wait(attempt.status, attempt.retry_after) else None


def _no_permit(ended: Sequence[Call]) -> CallLimit | None:
    """Calls that were never sent and waited for the same time; other calls last longer unless that
    bounds all of it."""
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


def without_cut(
    requests: Sequence[TimedAttempt], limits: Iterable[CallLimit]
) -> list[TimedAttempt]:
    """Return the requests; how one would have ended that the end of its call cut short is unknown.

    It hung all the same if it was under way for much longer than nearly all answers (others came
    when an outage ended), or if another one of its call hung.
    """
    answers = sorted(request.seconds for request in requests if request.ending == "answered")
    usual = answers[int(_NEARLY_ALL * len(answers))] if answers else 0.0
    cut = set[Attempt]()
    for limit in limits:
        for call in limit.calls:
            if not call.attempts or len(_hangs([call])) != 1:
                continue
            last = call.attempts[-1]
            if (last.seconds or 0.0) < _LONG * usual:
                cut.add(last)
    return [
        replace(request, ending="unknown") if request.attempt in cut else request
        for request in requests
    ]


def _reached(
    cut: Sequence[Call], ended: Sequence[Call], measure: Callable[[Call], float]
) -> list[Call]:
    """Return the calls that were cut when they had taken as long as none took longer, the longest
    first."""
    most = max(map(measure, ended), default=0.0)
    near = sorted(
        (call for call in cut if measure(call) >= most - _tolerance(most)),
        key=measure,
        reverse=True,
    )
    took = [hang.seconds or 0.0 for hang in _hangs(near)]
    others = max(took, default=0.0)
    for call in ended:
        for attempt in call.attempts:
            if ending_of(attempt) == "answered":
                others = max(others, attempt.seconds or 0.0)
    return near if took and others - min(took) > max(_CLEAR * others, _NOTICES_WITHIN) else []


def _hangs(calls: Iterable[Call]) -> list[Attempt]:
    return [attempt for call in calls for attempt in call.attempts if ending_of(attempt) == "hang"]


def _total(call: Call) -> float:
    return seconds_of(call) or 0.0


def _without_waits(call: Call) -> float:
    return _total(call) - sum(attempt.waited for attempt in call.attempts)


def _tolerance(seconds: float) -> float:
    return max(_SAME * seconds, _NOTICES_WITHIN)


_MARGIN = 10.0
"""Seconds that a client may wait longer than a program may run, where only the sum is known
(chosen)."""
_SHORTEST = 0.001
"""Seconds of the shortest timeout that a scenario may have."""
DEFAULT_TIMEOUT = 30.0
"""The tool's own default_timeout, which a scenario need not state."""
_MAX_TIMEOUT = 60.0
"""The tool's own max_timeout."""
Noted = dict[str, tuple[Any, str]]
"""Values by key, each with where it comes from."""


def client_settings(
    calls: Sequence[Call],
    requests: Sequence[TimedAttempt],
    concurrency: int,
    limits: Sequence[CallLimit],
) -> Noted:
    """Return the keys of ``tools``; ``limits`` ended whole calls, which say nothing about the
    others."""
    if (
        all(call.source != "client" for call in calls)
        and max((len(call.attempts) for call in calls), default=0) <= 1
    ):
        return {
            "enable_global_rate_limit": (
                False,
                "the log is the server's: what waited before it is not in there",
            ),
            "max_attempts": (1, "the log is the server's: each of its requests is a call here"),
            **_patience(requests),
        }
    ended = frozenset(call for limit in limits for call in limit.calls)
    cut = {call.attempts[-1] for call in ended if call.attempts}
    return {
        **_limit(requests, concurrency),
        **_patience([request for request in requests if request.attempt not in cut]),
        **{limit.key: (rounded(limit.seconds), limit.evidence) for limit in limits},
        **_attempts(calls, ended),
    }


def _limit(requests: Sequence[TimedAttempt], concurrency: int) -> Noted:
    waits = find_permit_waits(requests)
    if waits is not None and waits.pace is None:
        why = waits.evidence
        if waits.processes > 1:
            why += (
                f"; this is the total of {waits.processes} processes, each with a limiter of its "
                "own: a run has one limiter for all"
            )
        return {"rate_limit": (waits.limit, why)}
    peak = InFlight((request.began, request.ended) for request in requests).peak
    why = f"no request waited for others to end; at most {peak} were in flight"
    found: Noted = {"rate_limit": (max(concurrency, peak, 1), why)}
    if waits is not None and waits.pace is not None:
        found["requests_per_second"] = (rounded(waits.pace), waits.evidence)
        found["requests_burst"] = (waits.burst, "started at once after a pause")
    return found


def _patience(requests: Sequence[TimedAttempt]) -> Noted:
    """Find the timeout of programs, and how much longer a client waits for an answer."""
    timed_out = [
        request.seconds
        for request in requests
        if request.ending == "hang" and request.attempt.seconds is not None
    ]
    stopped = [
        seconds
        for request in requests
        if request.attempt.outcome == "program_timeout"
        and (seconds := request.attempt.execution_time or request.attempt.seconds) is not None
    ]
    answers = (request.attempt.seconds for request in requests if request.ending == "answered")
    longest = max((seconds for seconds in answers if seconds is not None), default=0.0)
    given_up = _given_up_after(timed_out, longest)

    if stopped:
        found = _from_stopped(stopped, timed_out, given_up)
    elif given_up is not None:
        found = _from_given_up(given_up, timed_out, longest)
    elif longest > DEFAULT_TIMEOUT:
        why = f"longer than the longest answer, {longest:.3g} s"
        found = {"default_timeout": (rounded(2 * longest), why)}
    else:
        found = {}
    if "default_timeout" in found and found["default_timeout"][0] > _MAX_TIMEOUT:
        found["max_timeout"] = (found["default_timeout"][0], "not below default_timeout")
    return found


def _given_up_after(timed_out: Sequence[float], longest: float) -> float | None:
    """Return the time after which the client gives up; None if that is not seen.

    A client that gives up after a time gets no answer that takes longer.
    """
    if not timed_out or max(timed_out) <= max(_SHORTEST, longest):
        return None
    whole, times = Counter(rounded(seconds) for seconds in timed_out).most_common(1)[0]
    return whole if times >= len(timed_out) / 3 else rounded(max(timed_out))


def _from_stopped(
    stopped: Sequence[float], timed_out: Sequence[float], given_up: float | None
) -> Noted:
    """Read the timeout from programs that ran into it."""
    timeout = max(rounded(_least_common(stopped)), _SHORTEST)
    why = f"{counted(len(stopped), 'program')} stopped after {timeout:g} s or later"
    found: Noted = {"default_timeout": (timeout, why)}
    if given_up is not None and given_up > timeout:
        why = f"{counted(len(timed_out), 'request')} given up after {given_up:g} s"
        found["transport_margin"] = (max(rounded(given_up - timeout), _SHORTEST), why)
    return found


def _from_given_up(given_up: float, timed_out: Sequence[float], longest: float) -> Noted:
    """Divide the time after which requests are given up into timeout and margin."""
    whole = max(given_up, 2 * _SHORTEST)
    # No program that was answered was stopped, so the timeout is longer than each of them took.
    timeout = rounded(max(whole - _MARGIN, whole / 2, (whole + longest) / 2))
    count = counted(len(timed_out), "request")
    sum_seen = f"{count} given up after {whole:g} s, which is timeout and margin together"
    only_sum = f"the log shows only the sum; the longest answer took {longest:.3g} s"
    return {
        "default_timeout": (timeout, sum_seen),
        "transport_margin": (max(rounded(whole - timeout), _SHORTEST), only_sum),
    }


def _least_common(seconds: Sequence[float]) -> float:
    """The least that a third of all are near: a busy server stops programs late, and a model may
    ask for less."""
    ordered = sorted(seconds)
    near = (
        value
        for place, value in enumerate(ordered)
        if bisect_right(ordered, 1.1 * value) - place >= len(ordered) / 3
    )
    return next(near, ordered[0])


def _attempts(calls: Sequence[Call], cut: frozenset[Call]) -> Noted:
    # Time alone, not max_attempts, bounds what is told to wait.
    counts = {call: sum(_order(attempt) is None for attempt in call.attempts) for call in calls}
    failed = [
        count
        for call, count in counts.items()
        if call.attempts
        and call not in cut
        and outcome_of(call) in FAILURES
        and _may_be_retried(call.attempts[-1])
    ]
    most = max(counts.values(), default=1)
    if failed:
        why = (
            f"{counted(len(failed), 'call')} gave up after at most "
            f"{counted(max(failed), 'attempt')}"
        )
        return {"max_attempts": (max(most, 1), why)}
    if most > 6:
        return {"max_attempts": (most, f"no call made more than {most}")}
    told_to_wait = [call for call in calls if counts[call] < len(call.attempts)]
    if told_to_wait and all(len(call.attempts) <= 1 for call in calls):
        return {
            "max_attempts": (
                1,
                f"{counted(len(told_to_wait), 'call')} told to wait, and none was sent again",
            )
        }
    return {}


def _may_be_retried(last: Attempt) -> bool:
    is_failure = last.status in RETRIED_STATUSES or last.outcome in (
        "unreachable",
        "transport_timeout",
    )
    return is_failure and _order(last) is None
