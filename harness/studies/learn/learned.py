"""What was learned from a log: load, client, programs, sandboxes, and the causes of trouble."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from ...core.logs.sides import servers_left_out
from ..look.clocks import clocks_apart
from .attempts import (
    InFlight,
    TimedAttempt,
    known_of,
    outcome_of,
    seconds_of,
    timed_requests,
)
from .causes import Cause, find_causes
from .client_settings import (
    DEFAULT_TIMEOUT,
    Noted,
    client_settings,
    find_call_limits,
    without_cut,
)
from .course import Course, course_of
from .distributions import Fit, fit, quantile
from .knowledge import (
    Knowledge,
    LimitSeen,
    experiment,
    experiment_minutes,
    find_knowledge,
    limit_to_try,
    limits_seen,
)
from .load import LoadFit, ProgramFit, find_load, find_programs
from .permits import find_permit_waits
from .sandbox_fit import MOST_SANDBOXES, SandboxFit, find_sandboxes
from .why import TimeUse, time_use_of

OUTCOME_POINTS = 2.0
"""How many percentage points the share of an outcome may differ; more where there are few calls
(chosen)."""
FEWEST = 20
"""Calls from which on a comparison says something (chosen)."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Outcomes, durations and rates of calls; 0 where a log does not know."""

    calls: int
    outcomes: dict[str, int]
    unfinished: int
    p50: float
    p95: float
    per_second: float
    attempts_per_call: float

    @property
    def is_enough(self) -> bool:
        return self.calls >= FEWEST

    def share(self, outcome: str) -> float:
        total = sum(self.outcomes.values())
        return self.outcomes.get(outcome, 0) / total if total else 0.0

    @property
    def failures(self) -> str:
        """Say how many calls failed for other reasons than their program; empty if none did."""
        failed = [outcome for outcome in self.outcomes if outcome in FAILURES]
        if not failed:
            return ""
        share = sum(map(self.share, failed))
        often = f"{share:.0%}" if share >= 0.01 else f"{share:.2%}"
        return f"{often} of the calls failed, mostly with {max(failed, key=self.share)}"

    def points(self, outcome: str) -> float:
        """How many percentage points the share of an outcome may differ in another run: at least
        two deviations."""
        calls = max(self.calls, 1)
        share = min(max(self.share(outcome), 0.5 / calls), 1 - 0.5 / calls)
        return max(OUTCOME_POINTS, 200 * math.sqrt(share * (1 - share) / calls))


def log_figures(*logs: Sequence[Call]) -> Figures:
    """Return the figures of a log, or of several runs of one scenario together."""
    calls = [call for log in logs for call in log]
    outcomes = Counter(outcome for outcome in map(outcome_of, calls) if outcome is not None)
    durations = sorted(seconds for seconds in map(seconds_of, calls) if seconds is not None)
    attempts = sum(len(call.attempts) for call in calls)
    return Figures(
        calls=len(calls),
        outcomes=dict(outcomes.most_common()),
        unfinished=len(calls) - sum(outcomes.values()),
        p50=quantile(durations, 0.5) if durations else 0.0,
        p95=quantile(durations, 0.95) if durations else 0.0,
        per_second=statistics.fmean(map(_rate, logs)),
        attempts_per_call=attempts / len(calls) if calls else 0.0,
    )


def _rate(calls: Sequence[Call]) -> float:
    """Calls that ended per second, without the first and the last tenth, where one slow call can
    double the time."""
    ends = sorted(call.began + (seconds_of(call) or 0.0) for call in calls)
    cut = len(ends) // 10
    span = ends[-1 - cut] - ends[cut] if ends else 0.0
    return (len(ends) - 1 - 2 * cut) / span if span > 0 else 0.0


_MOST_WORKERS = 64
"""Workers of the scenario, at most (chosen)."""
_BESIDE = 0.02
"""Seconds beside requests and waits that are worth a remark (chosen)."""
_UNKNOWN: dict[str, str] = {
    "order": "the log has no times: how calls arrive, how long programs run, limits and "
    "outages cannot be learned "
    "from it; {} callers are assumed, and programs that take no time",
    "times": "the log has no durations: how long programs run, how many calls are under "
    "way, contention, queues, "
    "limits of requests in flight and outages cannot be learned from it; programs are "
    "assumed to take no time",
}


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything that a scenario needs to behave like a log."""

    figures: Figures
    time_use: TimeUse
    course: Course
    span: float
    load: LoadFit
    workers: int
    client: Noted
    programs: tuple[ProgramFit, ...]
    cancel: tuple[float, Fit] | None
    sandboxes: tuple[SandboxFit, ...]
    causes: tuple[Cause, ...]
    knowledge: Knowledge
    peak: int
    """The most requests in flight."""
    processes: int
    """How many have a limiter of their own; 1 if they share one."""
    limits: tuple[LimitSeen, ...]
    remarks: tuple[str, ...] = field(default=())

    def doubted(self, why: str) -> Learned:
        """Return the same where the scenario is not like the log: it tells of no other limit than
        those that the log has."""
        known = self.knowledge
        if known.is_compared:
            doubt = replace(known, unknown=f"{why}; {known.unknown}")
            return replace(self, knowledge=doubt)
        in_flight = known.most or self.peak
        admitted = [
            sandbox.quota.model["in_flight"]
            for sandbox in self.sandboxes
            if sandbox.quota is not None and "in_flight" in sandbox.quota.model
        ]
        unknown = known.unknown or experiment(
            limit=min([limit_to_try(in_flight), *([sum(admitted)] if admitted else [])]),
            in_flight=in_flight,
            minutes=experiment_minutes(self.figures.per_second),
            processes=self.processes,
        )
        doubt = Knowledge(in_flight, in_flight, f"{why}; {unknown}", known.is_unsure)
        return replace(self, knowledge=doubt)

    @property
    def headline(self) -> str:
        """The main cause, in a word; "none" if nothing is wrong."""
        return self.causes[0].kind if self.causes else "none"


def requests_of(calls: Sequence[Call]) -> list[TimedAttempt]:
    calls = _one_side(calls)
    start = calls[0].began
    return timed_requests(calls, start, max(start, max(map(_last_seen, calls))))


def _one_side(calls: Sequence[Call]) -> Sequence[Call]:
    """Return the client's side of a traffic if it is logged, else all calls."""
    return [call for call in calls if call.source == "client"] or calls


def _last_seen(call: Call) -> float:
    """Return when a call, or the last of its attempts, ended as far as the log tells."""
    last = call.began + (seconds_of(call) or 0.0)
    for attempt in call.attempts:
        last = max(last, call.began + attempt.after + (attempt.seconds or 0.0))
    return last


def learn(calls: Sequence[Call], all_calls: Sequence[Call] = ()) -> Learned:
    """Learn from calls, which are not empty and in the order in which they began.

    Where both sides of the same traffic are logged, the client's side says more. The limits that a
    client had are also looked for in ``all_calls`` of the log, before and after a pause.
    """
    everything = calls
    calls = _one_side(calls)
    start = calls[0].began
    end = max(start, max(map(_last_seen, calls)))
    limits = find_call_limits(calls)
    requests = without_cut(timed_requests(calls, start, end), limits)
    known = known_of(calls)
    unsent = {call for limit in limits for call in limit.calls if not call.attempts}
    permits = find_permit_waits(requests, [seconds_of(call) or 0.0 for call in unsent])
    sandboxes = find_sandboxes(requests, known)
    load = find_load(calls, start, end)
    client = client_settings(calls, requests, load.concurrency, limits)
    timeout = client.get("default_timeout", (DEFAULT_TIMEOUT, ""))[0]
    programs = find_programs(calls, sandboxes, timeout)
    workers = len({call.worker for call in calls})
    figures = log_figures(calls)
    peak = InFlight((request.began, request.ended) for request in requests).peak
    has_pace = permits is not None and permits.pace is not None
    seen: tuple[LimitSeen, ...] = ()
    if not has_pace:  # with a pace, as many as come are in flight
        seen = limits_seen(requests_of(all_calls) if all_calls else requests)
    knowledge = find_knowledge(
        sandboxes=sandboxes,
        permits=permits,
        peak=peak,
        per_second=figures.per_second,
        seen=seen,
        stopped=figures.share("program_timeout"),
    )
    return Learned(
        figures=figures,
        time_use=time_use_of(calls),
        course=course_of(calls),
        span=end - start if known != "order" else 0.0,
        load=load,
        workers=max(1, min(workers, _MOST_WORKERS, load.concurrency)),
        client=client,
        programs=programs,
        cancel=_cancel(calls),
        sandboxes=sandboxes,
        causes=find_causes(
            calls=calls,
            requests=requests,
            sandboxes=sandboxes,
            programs=programs,
            permits=permits,
            span=end - start,
            is_unsure=knowledge.is_unsure,
        ),
        knowledge=knowledge,
        peak=peak,
        processes=permits.processes if permits is not None else 1,
        limits=seen,
        remarks=(
            *_unknown(known, load),
            *_remarks(calls, figures, len({request.attempt.endpoint for request in requests})),
            *_left_out(len(everything) - len(calls)),
        ),
    )


def _unknown(known: str, load: LoadFit) -> list[str]:
    """Say what a log without times, or without durations, cannot tell."""
    return [_UNKNOWN[known].format(load.concurrency)] if known in _UNKNOWN else []


def _left_out(records: int) -> list[str]:
    """Say how many records of servers are not learned from."""
    return [servers_left_out(records)] if records else []


def _cancel(calls: Sequence[Call]) -> tuple[float, Fit] | None:
    after = [
        took
        for call in calls
        if call.outcome == "cancelled" and (took := seconds_of(call)) is not None
    ]
    return (len(after) / len(calls), fit(after)) if after else None


def _remarks(calls: Sequence[Call], figures: Figures, labels: int) -> list[str]:
    remarks: list[str] = []
    if len(calls) < 50:
        remarks.append(f"{counted(len(calls), 'call')} only: every number here is rough")
    if figures.unfinished:
        remarks.append(
            f"the end of {counted(figures.unfinished, 'call')} is not in the log; they are "
            "not modelled"
        )
    if calls[-1].began == calls[0].began and len(calls) > 1:
        remarks.append("all calls have the same time: how they arrived is not known")
    beside = [
        took - call.attempts[0].seconds - call.attempts[0].waited
        for call in calls
        if len(call.attempts) == 1
        and call.attempts[0].seconds is not None
        and (took := call.seconds) is not None
    ]
    if beside and (spent := statistics.median(beside)) > max(_BESIDE, 0.1 * figures.p50):
        remarks.append(
            f"calls took {spent:.2g} s longer than their requests and waits, so the "
            "client's process was busy with "
            "something else; that is not modelled"
        )
    apart = _clocks_apart(calls) if all(call.timed for call in calls) else 0.0
    if apart:
        remarks.append(
            f"workers began and ended up to {apart:.0f} s apart; if they ran side by side, "
            "their clocks differ, and "
            "what is said about the load, and about when and for how long something "
            "happened, is wrong"
        )
    if labels > MOST_SANDBOXES:
        remarks.append(f"{labels} sandboxes; the {MOST_SANDBOXES} busiest are modelled")
    return remarks


def _clocks_apart(calls: Sequence[Call]) -> float:
    workers: dict[str, list[Call]] = {}
    for call in calls:
        workers.setdefault(call.worker, []).append(call)
    return clocks_apart(
        (own[0].began, max(call.began + (seconds_of(call) or 0.0) for call in own), len(own))
        for own in workers.values()
    )
