"""What was learned from a log: load, client, programs, sandboxes, and the causes of trouble."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from ..look.clocks import clocks_apart
from .attempts import InFlight, TimedAttempt, known_of, outcome_of, seconds_of, timed_requests
from .causes import Cause, PermitWaits, find_causes, find_permit_waits
from .client_settings import (
    DEFAULT_TIMEOUT,
    Noted,
    client_settings,
    find_call_limits,
    without_cut,
)
from .cores import CoresFit
from .course import Course, course_of
from .distributions import Fit, fit, quantile
from .load import LoadFit, ProgramFit, find_load, find_programs
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


_WIDE = 4.5
"""How many times the least possible number of cores the most possible one may be for advice to
rest on it (chosen)."""
_CALLS = 200
"""Calls that an experiment needs (chosen)."""
_AS_MUCH = 0.92
"""The share of the best throughput that is as much (chosen: a log of minutes is as precise)."""
_LESS = 0.75
"""The share of what is in flight with which an experiment shows whether the server was full
(chosen: one that was full does as much with it, another one loses a quarter for some minutes)."""
_MORE = 1.5
"""The same, for a server that was not full (chosen: one that is full then makes calls wait half as
long again, not twice)."""
_DOCTOR = "or measure a free sandbox with `sfusion doctor URL --sweep --log EVENTS`"


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


def less_in_flight(count: int) -> int:
    """Return how many an experiment sends at a time instead of ``count``: fewer, but never half;
    more where that would be half."""
    fewer = math.ceil(_LESS * count)
    return fewer if fewer < count else count + 1


def find_knowledge(
    sandboxes: Sequence[SandboxFit],
    permits: PermitWaits | None,
    peak: int,
    per_second: float,
    seen: Sequence[LimitSeen] = (),
) -> Knowledge:
    """Find out for which limits the log tells what happens, and what would tell it for others;
    ``seen`` are those that the client had one after the other."""
    log = _LimitedLog(
        sandboxes=sandboxes,
        limit=permits.limit if permits is not None and permits.pace is None else None,
        peak=peak,
        minutes=max(1, math.ceil(_CALLS / max(per_second, 0.01) / 60)),
        seen=seen,
    )
    return (
        log.several_limits()
        or log.vague_cores()
        or log.vague_overhead()
        or log.own_limit()
        or log.same_load()
    )


@dataclass(frozen=True)
class _LimitedLog:
    """A log in which the client, or the server, may have held requests back."""

    sandboxes: Sequence[SandboxFit]
    limit: int | None
    """The client's own."""
    peak: int
    minutes: int
    """How long an experiment would take."""
    seen: Sequence[LimitSeen]

    def several_limits(self) -> Knowledge | None:
        """Did fewer in flight do as much as more?"""
        if not self.seen or any(_waits_seen(sandbox) for sandbox in self.sandboxes):
            return None
        best = max(seen.per_second for seen in self.seen)
        enough = next(seen for seen in self.seen if seen.per_second >= _AS_MUCH * best)
        least = self.seen[0]
        top = self.seen[-1]
        if enough is top:
            return None  # the more, the better: the server was never full
        said = (
            f"in this log {enough.limit} in flight did as much as {top.limit} "
            f"({enough.per_second:.3g} and {top.per_second:.3g} calls per second)"
        )
        if enough is not least:
            said += f", and {least.limit} did less ({least.per_second:.3g})"
            return Knowledge(enough.limit, top.limit, said)
        fewer = less_in_flight(enough.limit)
        if fewer > enough.limit:
            return Knowledge(1, top.limit, said)
        return Knowledge(
            enough.limit,
            top.limit,
            f"{said}; whether fewer do, it does not tell; {self._experiment(fewer)}",
        )

    def vague_cores(self) -> Knowledge | None:
        """Is it only known that programs share cores, but not how many?"""
        shared = [
            sandbox.slowness.cores
            for sandbox in self.sandboxes
            if sandbox.slowness.model.get("cores") and sandbox.slowness.cores is not None
        ]
        vague = [cores for cores in shared if cores.most > _WIDE * cores.least]
        if not vague:
            return None
        least = min(cores.least for cores in vague)
        most = max(cores.most for cores in vague)
        in_flight = self.limit or self.peak
        return Knowledge(
            min(math.ceil(sum(cores.most for cores in vague)), in_flight),
            self.limit,
            f"programs share cores, but {least:.2g} to {most:.2g} of them would explain "
            "the log, because nearly all requests met the same load; "
            f"{self._experiment(less_in_flight(in_flight))}",
        )

    def vague_overhead(self) -> Knowledge | None:
        """Does much of the time pass beside the programs, at nearly always the same load?"""
        vague = [
            sandbox.overhead
            for sandbox in self.sandboxes
            if sandbox.overhead is not None
            and sandbox.overhead.is_long
            and not sandbox.overhead.is_fixed
            and not _is_saturated(sandbox)
        ]
        in_flight = self.limit or self.peak
        if not vague or in_flight < 2:
            return None
        return Knowledge(
            self.limit or 1,
            self.limit,
            f"{vague[0].says}; {self._experiment(less_in_flight(in_flight))}",
            is_unsure=self.limit is not None,
        )

    def own_limit(self) -> Knowledge | None:
        """Did the client never have enough in flight to fill the server?"""
        limit = self.limit
        if limit is None or any(_is_saturated(sandbox) for sandbox in self.sandboxes):
            return None
        unsure = self._unsure
        few = any(
            sandbox.slowness.cores is None and sandbox.slowness.kind == "none"
            for sandbox in self.sandboxes
        )
        if few:
            doubt = "too few requests to tell whether the server was full with them"
            other = less_in_flight(limit)
        elif not unsure:
            doubt = "the server was not full with them: what more would do is not known"
            other = math.ceil(_MORE * limit)
        else:
            doubt = (
                "nearly always as many: it does not tell whether the server was full, "
                f"perhaps already with {self._fewest(unsure)}"
            )
            other = less_in_flight(limit)
        return Knowledge(
            limit if unsure or few else 1,
            limit,
            f"the log never has more than {limit} in flight, and {doubt}; "
            f"{self._experiment(other)}",
            is_unsure=bool(unsure) or few,
        )

    def same_load(self) -> Knowledge:
        """Was the load always the same, so that it is not known whether programs share cores?"""
        unsure = self._unsure
        if not unsure:
            return Knowledge(1, self.limit, "")
        return Knowledge(
            1,
            self.limit,
            "with nearly always the same load the log does not tell whether programs share "
            f"cores: {self._fewest(unsure)} in flight may do as well as {self.peak}; "
            f"{self._experiment(less_in_flight(self.peak))}",
        )

    @property
    def _unsure(self) -> list[CoresFit]:
        """The cores of sandboxes that may have been full, or not."""
        found = []
        for sandbox in self.sandboxes:
            cores = sandbox.slowness.cores
            if cores is not None and cores.is_unsure and not _is_saturated(sandbox):
                found.append(cores)
        return found

    @staticmethod
    def _fewest(unsure: Sequence[CoresFit]) -> int:
        return max(1, math.floor(sum(cores.least for cores in unsure)))

    def _experiment(self, limit: int) -> str:
        minutes = counted(self.minutes, "minute")
        then = ""
        if limit < (self.limit or self.peak):
            then = " (if as many calls end per second, go on by a quarter; if not, go back)"
        return f"to find out, run {minutes} with rate_limit {limit}{then}, {_DOCTOR}"


def _waits_seen(sandbox: SandboxFit) -> bool:
    """Does the log show what requests wait for in the server, or what it refuses?"""
    shown = {"workers", "spawn_cost"} & sandbox.slowness.model.keys()
    return bool(shown) or sandbox.quota is not None


def _is_saturated(sandbox: SandboxFit) -> bool:
    return bool(sandbox.slowness.model) or sandbox.quota is not None


_PARTS = 24
"""Parts of the log in which limits are looked for (chosen)."""
_FEWEST = 30
"""Requests from which on a limit is more than an accident (chosen)."""
_WAITED = 0.02
"""Seconds from which on a request waited (chosen)."""
_APART = 1.3
"""How many times as many in flight make it another limit (chosen)."""


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
    busy = InFlight((request.began, request.ended) for request in requests)
    for part in parts:
        if sum(request.attempt.waited > _WAITED for request in part) < len(part) / 2 or not part:
            continue
        counts = sorted(busy.after(request.began) for request in part)
        limit = max(1, counts[len(counts) // 2])
        near = next(
            (known_limit for known_limit in found if 1 / _APART < limit / known_limit < _APART),
            limit,
        )
        found.setdefault(near, []).append(part)
    seen = [_seen(limit, found[limit]) for limit in sorted(found)]
    kept = tuple(limit_seen for limit_seen in seen if limit_seen.requests >= _FEWEST)
    return kept if len(kept) > 1 else ()


def _seen(limit: int, parts: Sequence[Sequence[TimedAttempt]]) -> LimitSeen:
    answered = sum(request.ending == "answered" for part in parts for request in part[1:])
    seconds = sum(part[-1].began - part[0].began for part in parts)
    return LimitSeen(limit, answered / seconds if seconds > 0 else 0.0, sum(map(len, parts)))


_MOST_WORKERS = 64
"""Workers of the scenario, at most (chosen)."""
_NOTICED = 0.02
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
_LEFT_OUT = "{:,} records of servers are left out, because there are also those of a client"


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
    limits: tuple[LimitSeen, ...]
    remarks: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        """The main cause, in a word; "none" if nothing is wrong."""
        return self.causes[0].kind if self.causes else "none"


def _last_seen(call: Call) -> float:
    """Return when a call, or the last of its attempts, ended as far as the log tells."""
    last = call.began + (seconds_of(call) or 0.0)
    for attempt in call.attempts:
        last = max(last, call.began + attempt.after + (attempt.seconds or 0.0))
    return last


def learn(calls: Sequence[Call]) -> Learned:
    """Learn from calls, which are not empty and in the order in which they began.

    Where both sides of the same traffic are logged, the client's side says more.
    """
    everything = calls
    calls = [call for call in calls if call.source == "client"] or calls
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
    seen = limits_seen(requests)
    knowledge = find_knowledge(sandboxes, permits, peak, figures.per_second, seen)
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
        limits=seen,
        remarks=(
            *([_UNKNOWN[known].format(load.concurrency)] if known in _UNKNOWN else []),
            *_remarks(calls, figures, len({request.attempt.endpoint for request in requests})),
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
