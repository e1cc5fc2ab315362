"""What was learned from a log: load, client, programs, sandboxes, and the causes of trouble."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.learning.arrivals import LoadFit, find_load
from sfusion.harness.learning.attempts import PROGRAM, Request, outcome_of, requests_of, seconds_of
from sfusion.harness.learning.client_settings import Noted, client_settings
from sfusion.harness.learning.distributions import Fit, fit, rounded, sample_distance
from sfusion.harness.learning.failures import FailureFit, find_failures
from sfusion.harness.learning.figures import Figures, figures_of
from sfusion.harness.learning.in_flight import InFlight
from sfusion.harness.learning.quota import QuotaFit, find_quota
from sfusion.harness.learning.slowness import Slowness, find_slowness
from sfusion.harness.logs.record import CallRecord
from sfusion_tools.wording import counted

_MOST_SANDBOXES = 64
_MOST_WORKERS = 64
_SLOWER = 1.3
_APART = 0.2
_ENOUGH = 20
_SMALLEST_CAUSE = 0.005
_ENDED_EARLY = ("compile_error", "program_timeout")
"""How long these took says little about the sandbox."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why calls failed or took longer."""

    kind: str
    """quota, queue, contention, degradation, slow_spell, crash, wedge, slow_sandbox, malformed_calls, or an ending."""
    says: str
    evidence: str
    weight: float
    """The share of requests, calls or time that it cost."""
    sandbox: str = ""


@dataclass(frozen=True, slots=True)
class ProgramFit:
    """Programs that end alike."""

    outcome: str
    calls: int
    of: int
    seconds: Fit | None
    keys: dict[str, Any]
    why: str
    share: int
    """How many calls would end like this if nothing else went wrong."""


@dataclass(frozen=True, slots=True)
class SandboxFit:
    """One sandbox."""

    label: str
    requests: int
    quota: QuotaFit | None
    slowness: Slowness
    failures: tuple[FailureFit, ...]
    base: tuple[tuple[str | None, float], ...]
    """Outcome and seconds of each answer, without what slowed it down."""
    slower: Fit | None = None
    """What it takes longer than the other sandboxes."""

    @property
    def is_plain(self) -> bool:
        return self.quota is None and self.slowness.kind == "none" and not self.failures and self.slower is None


@dataclass(frozen=True, slots=True)
class Learned:
    """Everything that a scenario needs to behave like a log."""

    figures: Figures
    span: float
    source: str
    load: LoadFit
    workers: int
    client: Noted
    programs: tuple[ProgramFit, ...]
    cancel: tuple[float, Fit] | None
    sandboxes: tuple[SandboxFit, ...]
    causes: tuple[Cause, ...]
    remarks: tuple[str, ...] = field(default=())

    @property
    def headline(self) -> str:
        """The main cause, in a word; "none" if nothing is wrong."""
        return self.causes[0].kind if self.causes else "none"


def learn(calls: Sequence[CallRecord]) -> Learned:
    """Learn from calls, which are not empty and in the order in which they began."""
    start = calls[0].began
    end = max(
        *(call.began + (seconds_of(call) or 0.0) for call in calls),
        *(one.began + (one.seconds or 0.0) for call in calls for one in call.attempts),
        start,
    )
    requests = requests_of(calls, start, end)
    sandboxes = _sandboxes(requests)
    load = find_load(calls, start, end)
    programs = _programs(calls, sandboxes)
    workers = len({call.worker for call in calls})
    figures = figures_of(calls)
    return Learned(
        figures=figures,
        span=end - start,
        source=Counter(call.source for call in calls).most_common(1)[0][0],
        load=load,
        workers=max(1, min(workers, _MOST_WORKERS, load.concurrency)),
        client=client_settings(calls, requests, load.concurrency),
        programs=programs,
        cancel=_cancel(calls),
        sandboxes=sandboxes,
        causes=_causes(sandboxes, programs, len(requests), end - start),
        remarks=tuple(_remarks(calls, requests, figures, len({one.record.sandbox for one in requests}))),
    )


def _sandboxes(requests: Sequence[Request]) -> tuple[SandboxFit, ...]:
    by_label: dict[str, list[Request]] = {}
    for one in requests:
        by_label.setdefault(one.record.sandbox, []).append(one)
    labels = sorted(by_label, key=lambda label: (-len(by_label[label]), label))[:_MOST_SANDBOXES]
    found = [_sandbox(label, by_label[label]) for label in sorted(labels)]
    return tuple(_compared(found)) or (_sandbox("", []),)


def _sandbox(label: str, requests: Sequence[Request]) -> SandboxFit:
    quota = find_quota(requests)
    timed = [one for one in requests if one.ending == "answered" and one.record.seconds is not None]
    answered = [one for one in timed if one.record.outcome not in _ENDED_EARLY]
    timed_out = [one for one in requests if one.ending == "hang"]
    refused = quota.refused if quota is not None else frozenset()
    inside = [one for place, one in enumerate(requests) if place not in refused]
    slowness = find_slowness(answered, inside, timed_out)
    failures = _failures(requests, inside, refused, slowness)
    outages = [one.between for one in failures if one.kind in ("crash", "wedge") and one.between is not None]
    if outages:  # what waited for its end was not slow by itself
        answered = [one for one in answered if not any(one.began < end and start < one.ended for start, end in outages)]
        slowness = find_slowness(answered, inside, timed_out)
        failures = _failures(requests, inside, refused, slowness)
    base = tuple(
        (answered[place].record.outcome, seconds) for place, seconds in zip(slowness.kept, slowness.base, strict=True)
    )
    base += tuple((one.record.outcome, one.seconds) for one in timed if one.record.outcome in _ENDED_EARLY)
    return SandboxFit(label, len(requests), quota, slowness, tuple(failures), base)


def _failures(
    requests: Sequence[Request], inside: Sequence[Request], refused: frozenset[int], slowness: Slowness
) -> list[FailureFit]:
    """Return the failures that are neither refusals by a limit nor answers that became too slow."""
    explained = set(refused)
    if slowness.kind in ("contention", "degradation"):
        busy = InFlight((one.began, one.ended) for one in inside)
        for place, one in enumerate(requests):
            if one.ending == "hang" and slowness.expected(one.began, busy.mean(one.began, one.ended)) > one.seconds / 2:
                explained.add(place)
    usual = statistics.median(slowness.base) if slowness.base else 0.0
    return find_failures(requests, frozenset(explained), usual)


def _compared(sandboxes: list[SandboxFit]) -> list[SandboxFit]:
    """Find the sandboxes that are slower than the fastest one, whatever they were asked to do."""
    known = [one for one in sandboxes if len(one.base) >= _ENOUGH]
    if len(known) < 2:
        return sandboxes
    fastest = min(known, key=lambda one: statistics.median(seconds for _, seconds in one.base))
    quick = [seconds for _, seconds in fastest.base]
    compared: list[SandboxFit] = []
    for one in sandboxes:
        own = [seconds for _, seconds in one.base]
        is_slow = (
            one in known
            and statistics.median(own) > _SLOWER * statistics.median(quick)
            and sample_distance(own, quick) > _APART
        )
        compared.append(one if not is_slow else _slower(one, own, quick))
    return compared


def _slower(sandbox: SandboxFit, own: list[float], quick: list[float]) -> SandboxFit:
    more = statistics.median(own) - statistics.median(quick)
    extra = statistics.pvariance(own) - statistics.pvariance(quick)
    deviation = math.sqrt(extra) if extra > (0.2 * more) ** 2 else 0.0
    distance = sample_distance([one + more for one in quick], own)
    if deviation == 0.0 or distance < _APART / 2:
        delay = Fit("constant", (more,), len(own), distance)
    elif deviation < 0.33 * more:
        delay = Fit("normal", (more, deviation), len(own), distance)
    else:
        # Whatever the program takes, the delay is drawn beside it.
        ordered, fast = sorted(own), statistics.median(quick)
        delay = fit([max(0.0, one - fast) for one in ordered])
    return SandboxFit(
        sandbox.label, sandbox.requests, sandbox.quota, sandbox.slowness, sandbox.failures, sandbox.base, delay
    )


_PROGRAM_KEYS: dict[str, dict[str, Any]] = {
    "ok": {},
    "program_error": {"exit": 1, "errors": "Traceback (most recent call last): ..."},
    "compile_error": {"language": "cpp", "compile_exit": 1, "compile_errors": "error: expected ';'"},
    "program_timeout": {},
}


def _programs(calls: Sequence[CallRecord], sandboxes: Sequence[SandboxFit]) -> tuple[ProgramFit, ...]:
    outcomes = Counter(outcome for call in calls if (outcome := outcome_of(call)) in PROGRAM)
    malformed = Counter(_problem(call) for call in calls if outcome_of(call) == "bad_arguments")
    known = sum(outcome_of(call) is not None for call in calls)
    # What would have become of the calls that failed otherwise?
    unseen = (known - sum(malformed.values())) / sum(outcomes.values()) if outcomes else 1.0
    base = [one for sandbox in sandboxes if sandbox.slower is None for one in sandbox.base]
    everything = [seconds for outcome, seconds in base if outcome not in _ENDED_EARLY]
    usual = fit(everything) if everything else None
    if not outcomes and not malformed:
        why = "no call got the result of its program, so this is a guess"
        return (ProgramFit("ok", 0, 0, usual or Fit("constant", (0.1,), 0, 0.0), {}, why, 1),)
    programs: list[ProgramFit] = []
    for outcome, count in outcomes.most_common():
        own = [seconds for ended, seconds in base if ended == outcome]
        why = f"{count:,} of {counted(known, 'call')} ended {outcome}"
        keys = dict(_PROGRAM_KEYS[outcome])
        if outcome == "program_timeout":
            why = f"{why}; longer than any timeout"
            programs.append(ProgramFit(outcome, count, known, None, keys, why, round(count * unseen)))
            continue
        is_alone = outcome in _ENDED_EARLY or len(own) >= _ENOUGH or not everything
        seconds = fit(own) if own and is_alone else usual
        if seconds is None:
            seconds, why = Fit("constant", (0.1,), 0, 0.0), f"{why}; the log says nothing about durations: a guess"
        why = f"{why}; seconds: {seconds}"
        programs.append(ProgramFit(outcome, count, known, seconds, keys, why, round(count * unseen)))
    for problem, count in malformed.most_common(3):
        share = round(count * sum(malformed.values()) / sum(one for _, one in malformed.most_common(3)))
        why = f"{count:,} of {counted(known, 'call')} had arguments that cannot be used: {problem}"
        keys = {"arguments": {"malformed": problem}}
        programs.append(ProgramFit("bad_arguments", count, known, None, keys, why, share))
    return tuple(programs)


def _problem(call: CallRecord) -> str:
    text = " ".join((call.problem or "").split())
    return "".join(one for one in text if one.isprintable())[:80] or "the log does not say why"


def _cancel(calls: Sequence[CallRecord]) -> tuple[float, Fit] | None:
    after = [took for call in calls if call.outcome == "cancelled" and (took := seconds_of(call)) is not None]
    return (len(after) / len(calls), fit(after)) if after else None


def _causes(
    sandboxes: Sequence[SandboxFit], programs: Sequence[ProgramFit], requests: int, span: float
) -> tuple[Cause, ...]:
    causes: list[Cause] = []
    time = sum(seconds for sandbox in sandboxes for _, seconds in sandbox.base) or 1.0
    for sandbox in sandboxes:
        label = sandbox.label if len(sandboxes) > 1 else ""
        part = sandbox.requests / max(requests, 1)
        if (quota := sandbox.quota) is not None:
            kind = str(quota.model["kind"])
            causes.append(Cause(kind, quota.says, quota.evidence, len(quota.refused) / requests, label))
        slow = sandbox.slowness
        if slow.kind != "none" and not (quota is not None and slow.kind == quota.model["kind"]):
            causes.append(Cause(slow.kind, slow.says, slow.evidence, slow.weight * part, label))
        for one in sandbox.failures:
            kind = one.kind if one.kind in ("crash", "wedge") else _cause_kind(one)
            lasted = (one.between[1] - one.between[0]) / span if one.between and kind in ("crash", "wedge") else 0.0
            causes.append(Cause(kind, one.says, one.evidence, one.failed / requests + lasted, label))
        if (slower := sandbox.slower) is not None:
            others = statistics.median(s for one in sandboxes if one.slower is None for _, s in one.base)
            own = statistics.median(s for _, s in sandbox.base)
            causes.append(
                Cause(
                    "slow_sandbox",
                    f"{label} takes {rounded(slower.median):g} s longer than the others",
                    f"median answer {own:.3g} s ({len(sandbox.base):,} answers), {others:.3g} s elsewhere",
                    slower.median * len(sandbox.base) / time,
                    label,
                )
            )
    malformed = [one for one in programs if one.outcome == "bad_arguments"]
    if malformed:
        count, of = sum(one.calls for one in malformed), malformed[0].of
        problems = "; ".join(f"{one.keys['arguments']['malformed']} ({one.calls:,})" for one in malformed)
        says = f"malformed tool calls: {count / of:.1%} had arguments that cannot be used"
        causes.append(Cause("malformed_calls", says, f"{count:,} of {counted(of, 'call')}: {problems}", count / of))
    serious = [one for one in causes if one.weight >= _SMALLEST_CAUSE] or causes
    return tuple(sorted(serious, key=lambda one: -one.weight))


def _cause_kind(one: FailureFit) -> str:
    ending, status = one.family
    name = f"status_{status}" if ending == "status" else ending
    return f"{name}_burst" if one.kind == "burst" else name


def _remarks(calls: Sequence[CallRecord], requests: Sequence[Request], figures: Figures, labels: int) -> list[str]:
    remarks: list[str] = []
    if len(calls) < 50:
        remarks.append(f"{counted(len(calls), 'call')} only: every number here is rough")
    if requests and all(one.record.seconds is None for one in requests):
        remarks.append("the log has no durations of requests: those of programs are a guess")
    if figures.unfinished:
        remarks.append(f"the end of {counted(figures.unfinished, 'call')} is not in the log; they are not modelled")
    if calls[-1].began == calls[0].began and len(calls) > 1:
        remarks.append("all calls have the same time: how they arrived is a guess")
    if labels > _MOST_SANDBOXES:
        remarks.append(f"{labels} sandboxes; the {_MOST_SANDBOXES} busiest are modelled")
    return remarks
