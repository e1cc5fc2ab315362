"""How the client behaved: its limit, its patience, its retries."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

from sfusion.harness.studies.learn.attempts import INFRASTRUCTURE, LoggedRequest, outcome_of
from sfusion.harness.studies.learn.call_limits import CallLimit
from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.permits import find_permit_waits
from sfusion.harness.studies.look.record import LoggedCall
from sfusion_tools.sandbox.retry import RETRIED_STATUSES, is_order_to_wait
from sfusion_tools.wording import counted

_MARGIN = 10.0
_BASE, _CAP = 0.5, 8.0
_SHORTEST = 0.001
Noted = dict[str, tuple[Any, str]]
"""Values by key, each with where it comes from."""


def client_settings(
    calls: Sequence[LoggedCall], requests: Sequence[LoggedRequest], concurrency: int, limits: Sequence[CallLimit]
) -> Noted:
    """Return the keys of ``tools``; ``limits`` ended whole calls, which say nothing about the others."""
    if all(call.source != "client" for call in calls) and max((len(one.attempts) for one in calls), default=0) <= 1:
        return {
            "enable_global_rate_limit": (False, "the log is the server's: what waited before it is not in there"),
            "max_attempts": (1, "the log is the server's: each of its requests is a call here"),
            **_patience(requests),
        }
    ended = frozenset(call for limit in limits for call in limit.calls)
    cut = {call.attempts[-1] for call in ended if call.attempts}
    return {
        **_limit(requests, concurrency),
        **_patience([one for one in requests if one.record not in cut]),
        **{one.key: (rounded(one.seconds), one.evidence) for one in limits},
        **_attempts(calls, ended),
        **_backoff(calls),
    }


def _limit(requests: Sequence[LoggedRequest], concurrency: int) -> Noted:
    waits = find_permit_waits(requests)
    if waits is not None:
        return {"rate_limit": (waits.limit, waits.evidence)}
    peak = InFlight((one.began, one.ended) for one in requests).peak
    why = f"no request waited for a permit; at most {peak} were in flight"
    return {"rate_limit": (max(concurrency, peak, 1), why)}


def _patience(requests: Sequence[LoggedRequest]) -> Noted:
    timed_out = [one.seconds for one in requests if one.ending == "hang" and one.record.seconds is not None]
    stopped = [
        seconds
        for one in requests
        if one.record.outcome == "program_timeout" and (seconds := one.record.seconds) is not None
    ]
    answers = (one.record.seconds for one in requests if one.ending == "answered")
    longest = max((seconds for seconds in answers if seconds is not None), default=0.0)
    found: Noted = {}
    whole: float | None = None
    # A client that gives up after a time gets no answer that takes longer.
    if timed_out and max(timed_out) > max(_SHORTEST, longest):
        whole, times = Counter(rounded(one) for one in timed_out).most_common(1)[0]
        if times < len(timed_out) / 3:
            whole = rounded(max(timed_out))
    if stopped:
        middle = max(rounded(statistics.median(stopped)), _SHORTEST)
        found["default_timeout"] = (middle, f"{counted(len(stopped), 'program')} stopped after {middle:g} s")
        if whole is not None and whole > middle:
            why = f"{counted(len(timed_out), 'request')} given up after {whole:g} s"
            found["transport_margin"] = (max(rounded(whole - middle), _SHORTEST), why)
    elif whole is not None:
        whole = max(whole, 2 * _SHORTEST)
        # No program that was answered was stopped, so the timeout is longer than each of them took.
        timeout = rounded(max(whole - _MARGIN, whole / 2, (whole + longest) / 2))
        why = f"{counted(len(timed_out), 'request')} given up after {whole:g} s, which is timeout and margin together"
        found["default_timeout"] = (timeout, why)
        why = f"the log shows only the sum; the longest answer took {longest:.3g} s"
        found["transport_margin"] = (max(rounded(whole - timeout), _SHORTEST), why)
    elif longest > 30.0:
        found["default_timeout"] = (rounded(2 * longest), f"longer than the longest answer, {longest:.3g} s")
    if "default_timeout" in found and found["default_timeout"][0] > 60:
        found["max_timeout"] = (found["default_timeout"][0], "not below default_timeout")
    return found


def _attempts(calls: Sequence[LoggedCall], cut: frozenset[LoggedCall]) -> Noted:
    failed = [
        sum(not is_order_to_wait(one.status, one.retry_after) for one in call.attempts)
        for call in calls
        if call.attempts and call not in cut and outcome_of(call) in INFRASTRUCTURE and _may_be_retried(call)
    ]
    most = max((sum(not is_order_to_wait(a.status, a.retry_after) for a in call.attempts) for call in calls), default=1)
    if failed:
        why = f"{counted(len(failed), 'call')} gave up after at most {counted(max(failed), 'attempt')}"
        return {"max_attempts": (max(most, 1), why)}
    if most > 6:
        return {"max_attempts": (most, f"no call made more than {most}")}
    told_to_wait = [call for call in calls if any(is_order_to_wait(a.status, a.retry_after) for a in call.attempts)]
    if told_to_wait and all(len(call.attempts) <= 1 for call in calls):
        return {"max_attempts": (1, f"{counted(len(told_to_wait), 'call')} told to wait, and none was sent again")}
    return {}


def _may_be_retried(call: LoggedCall) -> bool:
    """Time alone, not max_attempts, bounds what is told to wait."""
    last = call.attempts[-1]
    if is_order_to_wait(last.status, last.retry_after):
        return False
    return last.status in RETRIED_STATUSES or last.outcome in ("unreachable", "transport_timeout")


def _backoff(calls: Sequence[LoggedCall]) -> Noted:
    """The first pause is between half of ``backoff_base`` and all of it, beside what Retry-After asks for."""
    first, longest = [], 0.0
    for call in calls:
        for number in range(1, len(call.attempts)):
            before, after = call.attempts[number - 1 : number + 1]
            if before.seconds is None:
                continue
            pause = after.began - after.waited - before.began - before.seconds - (before.retry_after or 0.0)
            longest = max(longest, pause)
            if number == 1:
                first.append(max(0.0, pause))
    if len(first) < 5:
        return {}
    found: Noted = {}
    base = rounded(statistics.fmean(first) / 0.75)
    if not 0.7 * _BASE <= base <= 1.4 * _BASE:
        why = f"the first pause of {counted(len(first), 'call')} was {statistics.fmean(first):.3g} s on average"
        found["backoff_base"] = (max(base, _SHORTEST), why)
    if longest > 1.3 * _CAP:
        found["backoff_cap"] = (rounded(longest), "the longest pause")
    return found
