"""What was learned from a log: load, client, programs, sandboxes, and the causes of trouble."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from sfusion.harness.studies.clocks import clocks_apart
from sfusion.harness.studies.learn.attempts import known_of, requests_of, seconds_of
from sfusion.harness.studies.learn.causes import Cause, find_causes, find_permit_waits
from sfusion.harness.studies.learn.client_settings import Noted, client_settings, find_call_limits, without_cut
from sfusion.harness.studies.learn.distributions import Fit, fit
from sfusion.harness.studies.learn.figures import Figures, figures_of
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.knowledge import Knowledge, LimitSeen, find_knowledge, limits_seen
from sfusion.harness.studies.learn.load import LoadFit, ProgramFit, find_load, find_programs
from sfusion.harness.studies.learn.sandbox_fit import MOST_SANDBOXES, SandboxFit, find_sandboxes
from sfusion_tools.record import Call
from sfusion_tools.wording import counted

_MOST_WORKERS = 64
_NOTICED = 0.02
_UNKNOWN: dict[str, str] = {
    "order": "the log has no times: how calls arrive, how long programs run, limits and outages cannot be learned "
    "from it; {} callers are assumed, and programs that take no time",
    "times": "the log has no durations: how long programs run, how many calls are under way, contention, queues, "
    "limits of requests in flight and outages cannot be learned from it; programs are assumed to take no time",
}
_LEFT_OUT = "{:,} records of servers are left out, because there are also those of a client"


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything that a scenario needs to behave like a log."""

    figures: Figures
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
        span=end - start if known != "order" else 0.0,
        load=load,
        workers=max(1, min(workers, _MOST_WORKERS, load.concurrency)),
        client=client_settings(calls, requests, load.concurrency, limits),
        programs=programs,
        cancel=_cancel(calls),
        sandboxes=sandboxes,
        causes=find_causes(calls, requests, sandboxes, programs, permits, end - start, is_unsure=knowledge.is_unsure),
        knowledge=knowledge,
        limits=limits_seen(requests),
        remarks=(
            *([_UNKNOWN[known].format(load.concurrency)] if known in _UNKNOWN else []),
            *_remarks(calls, figures, len({one.attempt.endpoint for one in requests})),
            *([_LEFT_OUT.format(len(everything) - len(calls))] if len(calls) < len(everything) else []),
        ),
    )


def _cancel(calls: Sequence[Call]) -> tuple[float, Fit] | None:
    after = [took for call in calls if call.outcome == "cancelled" and (took := seconds_of(call)) is not None]
    return (len(after) / len(calls), fit(after)) if after else None


def _remarks(calls: Sequence[Call], figures: Figures, labels: int) -> list[str]:
    remarks: list[str] = []
    if len(calls) < 50:
        remarks.append(f"{counted(len(calls), 'call')} only: every number here is rough")
    if figures.unfinished:
        remarks.append(f"the end of {counted(figures.unfinished, 'call')} is not in the log; they are not modelled")
    if calls[-1].began == calls[0].began and len(calls) > 1:
        remarks.append("all calls have the same time: how they arrived is not known")
    beside = [
        took - call.attempts[0].seconds - call.attempts[0].waited
        for call in calls
        if len(call.attempts) == 1 and call.attempts[0].seconds is not None and (took := call.seconds) is not None
    ]
    if beside and (spent := statistics.median(beside)) > max(_NOTICED, 0.1 * figures.p50):
        remarks.append(
            f"calls took {spent:.2g} s longer than their requests and waits, so the client's process was busy with "
            "something else; that is not modelled"
        )
    apart = _clocks_apart(calls) if all(call.timed for call in calls) else 0.0
    if apart:
        remarks.append(
            f"workers began and ended up to {apart:.0f} s apart; if they ran side by side, their clocks differ, and "
            "what is said about the load, and about when and for how long something happened, is wrong"
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
