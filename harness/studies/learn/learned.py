"""What was learned from a log: load, client, programs, sandboxes, and the causes of trouble."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from ..look.digest import clocks_apart
from .attempts import InFlight, TimedAttempt, known_of, outcome_of, requests_of, seconds_of
from .causes import Cause, PermitWaits, find_causes, find_permit_waits
from .client_settings import Noted, client_settings, find_call_limits, without_cut
from .course import Course, course_of
from .distributions import Fit, fit, quantile
from .load import LoadFit, ProgramFit, find_load, find_programs
from .sandbox_fit import MOST_SANDBOXES, SandboxFit, find_sandboxes

OUTCOME_POINTS = 5.0
"""How many percentage points the share of an outcome may differ; more where there are few calls."""
FEWEST = 20
"""Calls from which on a comparison says something."""


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

    def points(self, outcome: str) -> float:
        """How many percentage points the share of an outcome may differ in another run: at least
        two deviations."""
        calls = max(self.calls, 1)
        share = min(max(self.share(outcome), 0.5 / calls), 1 - 0.5 / calls)
        return max(OUTCOME_POINTS, 200 * math.sqrt(share * (1 - share) / calls))


def figures_of(calls: Sequence[Call]) -> Figures:
    outcomes = Counter(one for one in map(outcome_of, calls) if one is not None)
    durations = sorted(one for one in map(seconds_of, calls) if one is not None)
    ends = sorted(call.began + (seconds_of(call) or 0.0) for call in calls)
    attempts = sum(len(call.attempts) for call in calls)
    return Figures(
        calls=len(calls),
        outcomes=dict(outcomes.most_common()),
        unfinished=len(calls) - sum(outcomes.values()),
        p50=quantile(durations, 0.5) if durations else 0.0,
        p95=quantile(durations, 0.95) if durations else 0.0,
        per_second=_rate(ends),
        attempts_per_call=attempts / len(calls) if calls else 0.0,
    )


def _rate(ends: Sequence[float]) -> float:
    """Calls that ended per second, without the first and the last tenth, where one slow call can
    double the time."""
    cut = len(ends) // 10
    span = ends[-1 - cut] - ends[cut] if ends else 0.0
    return (len(ends) - 1 - 2 * cut) / span if span > 0 else 0.0


_WIDE = 4.5
"""How many times the least possible number of cores the most possible one may be for advice to rest
on it."""
_CALLS = 200
"""Calls that an experiment needs."""
_DOCTOR = "or measure with `sfusion doctor URL --sweep --program typical.py`"


@dataclass(frozen=True, slots=True)
class Knowledge:
    """From which ``rate_limit`` to which one the log tells what happens."""

    least: int
    most: int | None
    """None: no call was held back, so a higher one changes nothing."""
    unknown: str
    """What the log does not tell, and what would; empty if it tells all."""
    is_unsure: bool = False
    """True if the server may have been full, or not."""


def find_knowledge(
    sandboxes: Sequence[SandboxFit], permits: PermitWaits | None, peak: int, per_second: float
) -> Knowledge:
    limit = permits.limit if permits is not None and permits.pace is None else None
    minutes = max(1, math.ceil(_CALLS / max(per_second, 0.01) / 60))
    known = [(one, one.slowness.cores) for one in sandboxes]
    shared = [
        cores for one, cores in known if cores is not None and one.slowness.model.get("cores")
    ]
    vague = [one for one in shared if one.most > _WIDE * one.least]
    if vague:
        least, most = min(one.least for one in vague), max(one.most for one in vague)
        return Knowledge(
            min(math.ceil(sum(one.most for one in vague)), limit or peak),
            limit,
            f"programs share cores, but {least:.2g} to {most:.2g} of them would explain "
            "the log, because nearly all "
            f"requests met the same load; {_experiment(max(1, (limit or peak) // 4), minutes)}",
        )
    unsure = [
        cores
        for one, cores in known
        if cores is not None and cores.is_unsure and not _is_saturated(one)
    ]
    fewer = max(1, math.floor(sum(one.least for one in unsure)))
    if limit is not None and not any(_is_saturated(one) for one in sandboxes):
        few = any(cores is None and one.slowness.kind == "none" for one, cores in known)
        if few:
            doubt, other = (
                "too few requests to tell whether the server was full with them",
                max(1, limit // 2),
            )
        elif not unsure:
            doubt, other = (
                "the server was not full with them: what more would do is not known",
                2 * limit,
            )
        else:
            doubt = (
                "nearly always as many: it does not tell whether the server was full, "
                f"perhaps already with {fewer}"
            )
            other = max(1, limit // 2)
        unknown = (
            f"the log never has more than {limit} in flight, and {doubt}; "
            f"{_experiment(other, minutes)}"
        )
        return Knowledge(limit if unsure or few else 1, limit, unknown, bool(unsure) or few)
    unknown = (
        "with nearly always the same load the log does not tell whether programs share "
        f"cores: {fewer} in flight may "
        f"do as well as {peak}; {_experiment(max(1, peak // 2), minutes)}"
    )
    return Knowledge(1, limit, unknown if unsure else "")


def _is_saturated(one: SandboxFit) -> bool:
    return bool(one.slowness.model) or one.quota is not None


def _experiment(limit: int, minutes: int) -> str:
    return f"to find out, run {counted(minutes, 'minute')} with rate_limit {limit}, {_DOCTOR}"


_PARTS = 24
_FEWEST = 30
_WAITED = 0.02
_APART = 1.3
"""How many times as many in flight make it another limit."""


@dataclass(frozen=True, slots=True)
class LimitSeen:
    """What requests did while at most so many were in flight, and others waited."""

    limit: int
    per_second: float
    """Requests answered."""
    requests: int


def limits_seen(requests: Sequence[TimedAttempt]) -> tuple[LimitSeen, ...]:
    """The limits in rising order; empty if there was only one, or if too little waited to tell."""
    size = len(requests)
    parts = [requests[size * k // _PARTS : size * (k + 1) // _PARTS] for k in range(_PARTS)]
    found: dict[int, list[Sequence[TimedAttempt]]] = {}
    busy = InFlight((one.began, one.ended) for one in requests)
    for part in parts:
        if sum(one.attempt.waited > _WAITED for one in part) < len(part) / 2 or not part:
            continue
        counts = sorted(busy.after(one.began) for one in part)
        limit = max(1, counts[len(counts) // 2])
        near = next((one for one in found if 1 / _APART < limit / one < _APART), limit)
        found.setdefault(near, []).append(part)
    seen = [_seen(limit, found[limit]) for limit in sorted(found)]
    kept = tuple(one for one in seen if one.requests >= _FEWEST)
    return kept if len(kept) > 1 else ()


def _seen(limit: int, parts: Sequence[Sequence[TimedAttempt]]) -> LimitSeen:
    answered = sum(one.ending == "answered" for part in parts for one in part[1:])
    seconds = sum(part[-1].began - part[0].began for part in parts)
    return LimitSeen(limit, answered / seconds if seconds > 0 else 0.0, sum(map(len, parts)))


_MOST_WORKERS = 64
_NOTICED = 0.02
_UNKNOWN: dict[str, str] = {
    "order": "the log has no times: how calls arrive, how long programs run, limits and "
    "outages cannot be learned "
    "from it; {} callers are assumed, and programs that take no time",
    "times": "the log has no durations: how long programs run, how many calls are under "
    "way, contention, queues, "
    "limits of requests in flight and outages cannot be learned from it; programs are "
    "assumed to take no time",
}
_LEFT_OUT = "{:,} records of servers are left out, because there are also those of a client"


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything that a scenario needs to behave like a log."""

    figures: Figures
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
    limits: tuple[LimitSeen, ...]
    remarks: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        """The main cause, in a word; "none" if nothing is wrong."""
        return self.causes[0].kind if self.causes else "none"


def learn(calls: Sequence[Call]) -> Learned:
    """Learn from calls, which are not empty and in the order in which they began.

    Where both sides of the same traffic are logged, the client's side says more.
    """
    everything = calls
    calls = [call for call in calls if call.source == "client"] or calls
    start = calls[0].began
    end = max(
        *(call.began + (seconds_of(call) or 0.0) for call in calls),
        *(call.began + one.after + (one.seconds or 0.0) for call in calls for one in call.attempts),
        start,
    )
    limits = find_call_limits(calls)
    requests = without_cut(requests_of(calls, start, end), limits)
    known = known_of(calls)
    unsent = {call for limit in limits for call in limit.calls if not call.attempts}
    permits = find_permit_waits(requests, [seconds_of(call) or 0.0 for call in unsent])
    sandboxes = find_sandboxes(requests, known)
    load = find_load(calls, start, end)
    programs = find_programs(calls, sandboxes)
    workers = len({call.worker for call in calls})
    figures = figures_of(calls)
    peak = InFlight((one.began, one.ended) for one in requests).peak
    knowledge = find_knowledge(sandboxes, permits, peak, figures.per_second)
    return Learned(
        figures=figures,
        course=course_of(calls),
        span=end - start if known != "order" else 0.0,
        load=load,
        workers=max(1, min(workers, _MOST_WORKERS, load.concurrency)),
        client=client_settings(calls, requests, load.concurrency, limits),
        programs=programs,
        cancel=_cancel(calls),
        sandboxes=sandboxes,
        causes=find_causes(
            calls,
            requests,
            sandboxes,
            programs,
            permits,
            end - start,
            is_unsure=knowledge.is_unsure,
        ),
        knowledge=knowledge,
        limits=limits_seen(requests),
        remarks=(
            *([_UNKNOWN[known].format(load.concurrency)] if known in _UNKNOWN else []),
            *_remarks(calls, figures, len({one.attempt.endpoint for one in requests})),
            *(
                [_LEFT_OUT.format(len(everything) - len(calls))]
                if len(calls) < len(everything)
                else []
            ),
        ),
    )


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
    if beside and (spent := statistics.median(beside)) > max(_NOTICED, 0.1 * figures.p50):
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
