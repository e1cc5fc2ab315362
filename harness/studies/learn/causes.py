"""Why calls failed or took longer, in the order of what it cost."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from .attempts import TimedAttempt, outcome_of
from .distributions import rounded
from .failures import FailureFit
from .load import ProgramFit
from .permits import PermitWaits
from .sandbox_fit import SandboxFit

_SERIOUS = 0.2
"""The share of the time from which on waits for permits are a cause (chosen)."""
_SMALLEST = 0.005
"""The share of what it cost up to which a cause is not worth a line beside others (chosen)."""
_MATTERS = 0.05
"""The weight from which on a cause may be the reason for waits for permits (chosen)."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why calls failed or took longer."""

    kind: str
    """quota, queue, contention, degradation, slow_spell, slowdown, overhead, crash, wedge,
    slow_sandbox, malformed_calls, rate_limit, unknown_limit or an ending."""
    says: str
    evidence: str
    weight: float
    """The share of requests, calls or time that it cost."""
    sandbox: str = ""
    lost: float = 0.0
    """The share of calls that failed because of it."""

    @property
    def harm(self) -> tuple[bool, float]:
        """What it did to training: lost calls are worse than lost time."""
        return (True, self.lost) if self.lost >= _SMALLEST else (False, self.weight)


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the finders look at: a sandbox, and the log that it is a part of."""

    sandbox: SandboxFit
    sandboxes: Sequence[SandboxFit]
    fatal: Sequence[TimedAttempt]
    """The requests to this sandbox with which calls failed."""
    calls: int
    requests: int
    span: float

    @property
    def label(self) -> str:
        """The name of the sandbox; empty if there is only one."""
        return self.sandbox.label if len(self.sandboxes) > 1 else ""


def _quota(seen: _Seen) -> Iterator[Cause]:
    """Did the sandbox refuse requests above a limit?"""
    quota = seen.sandbox.quota
    if quota is None:
        return
    status = quota.model.get("status", 429)
    lost = sum(request.attempt.status == status for request in seen.fatal)
    yield Cause(
        kind=quota.kind,
        says=quota.says,
        evidence=quota.evidence,
        weight=len(quota.refused) / seen.requests,
        sandbox=seen.label,
        lost=lost / seen.calls,
    )


def _slowness(seen: _Seen) -> Iterator[Cause]:
    """Did something slow the sandbox down, other than the limit that is named already?"""
    slow = seen.sandbox.slowness
    quota = seen.sandbox.quota
    is_named = quota is not None and slow.kind == quota.kind
    if slow.kind == "none" or is_named:
        return
    yield Cause(
        kind=slow.kind,
        says=slow.says,
        evidence=slow.evidence,
        weight=slow.weight * seen.sandbox.requests / seen.requests,
        sandbox=seen.label,
        lost=len(slow.longer_programs) / seen.calls,
    )


def _failures(seen: _Seen) -> Iterator[Cause]:
    """Which kinds of failures did it have? Those of a certain time explain lost calls first."""
    unexplained = list(seen.fatal)
    for failure in sorted(seen.sandbox.failures, key=lambda failure: failure.between is None):
        explained = {id(request) for request in unexplained if failure.explains(request)}
        unexplained = [request for request in unexplained if id(request) not in explained]
        yield Cause(
            kind=_cause_kind(failure),
            says=failure.says,
            evidence=failure.evidence,
            weight=failure.failed / seen.requests + _share_of_time(failure, seen.span),
            sandbox=seen.label,
            lost=len(explained) / seen.calls,
        )


def _share_of_time(failure: FailureFit, span: float) -> float:
    """Return the share of the log's time that an outage lasted; 0 for other failures."""
    if failure.kind not in ("crash", "wedge") or not failure.between:
        return 0.0
    began, ended = failure.between
    return (min(ended, span) - began) / max(span, 1e-9)


def _overhead(seen: _Seen) -> Iterator[Cause]:
    """Does much of the time pass beside the programs?"""
    overhead = seen.sandbox.overhead
    if overhead is None or not overhead.is_long:
        return
    yield Cause(
        kind="overhead",
        says=f"requests take {rounded(overhead.delay.median):g} s longer than their programs",
        evidence=overhead.says,
        weight=overhead.share * seen.sandbox.requests / seen.requests,
        sandbox=seen.label,
    )


def _slow_sandbox(seen: _Seen) -> Iterator[Cause]:
    """Is it slower than the others?"""
    sandbox = seen.sandbox
    if sandbox.slower is None:
        return
    fast = [other for other in seen.sandboxes if other.slower is None]
    elsewhere = statistics.median(seconds for other in fast for _, seconds in other.base)
    usual = statistics.median(seconds for _, seconds in sandbox.base)
    all_seconds = sum(seconds for other in seen.sandboxes for _, seconds in other.base) or 1.0
    more = sandbox.slower.median
    yield Cause(
        kind="slow_sandbox",
        says=f"{seen.label} takes {rounded(more):g} s longer than the others",
        evidence=(
            f"median answer {usual:.3g} s ({len(sandbox.base):,} answers), "
            f"{elsewhere:.3g} s elsewhere"
        ),
        weight=more * len(sandbox.base) / all_seconds,
        sandbox=seen.label,
    )


_OF_A_SANDBOX = (_quota, _slowness, _failures, _overhead, _slow_sandbox)


def find_causes(
    calls: Sequence[Call],
    requests: Sequence[TimedAttempt],
    sandboxes: Sequence[SandboxFit],
    programs: Sequence[ProgramFit],
    permits: PermitWaits | None,
    span: float,
    *,
    is_unsure: bool = False,
) -> tuple[Cause, ...]:
    """Return first what made calls fail, then what cost time.

    ``is_unsure``: the server may have been full, or not.
    """
    causes = _together(sandboxes, _of_sandboxes(calls, requests, sandboxes, span))
    causes += _malformed_calls(programs)
    serious = [cause for cause in causes if max(cause.weight, cause.lost) >= _SMALLEST]
    found = sorted(serious or causes, key=lambda cause: cause.harm, reverse=True)
    if permits is not None and permits.share >= _SERIOUS:
        # Requests that the server keeps for longer let others wait, so that is named first.
        bound = (False, min(permits.weight, _MATTERS))
        place = sum(cause.harm > bound for cause in found)
        found.insert(place, _own_limit(permits, max(len(calls), 1), is_unsure=is_unsure))
    return tuple(found)


def _of_sandboxes(
    calls: Sequence[Call],
    requests: Sequence[TimedAttempt],
    sandboxes: Sequence[SandboxFit],
    span: float,
) -> list[Cause]:
    """Ask every finder about every sandbox."""
    failed = [call for call in calls if outcome_of(call) in FAILURES]
    last = {id(call.attempts[-1]) for call in failed if call.attempts}
    fatal = [request for request in requests if id(request.attempt) in last]
    causes: list[Cause] = []
    for sandbox in sandboxes:
        is_only = len(sandboxes) == 1 or not sandbox.label
        own = [request for request in fatal if is_only or request.attempt.endpoint == sandbox.label]
        seen = _Seen(
            sandbox=sandbox,
            sandboxes=sandboxes,
            fatal=own,
            calls=max(len(calls), 1),
            requests=max(len(requests), 1),
            span=span,
        )
        for find in _OF_A_SANDBOX:
            causes.extend(find(seen))
    return causes


def _malformed_calls(programs: Sequence[ProgramFit]) -> list[Cause]:
    """Did the model make calls that cannot be used?"""
    malformed = [program for program in programs if program.outcome == "bad_arguments"]
    if not malformed:
        return []
    count = sum(program.calls for program in malformed)
    known = malformed[0].of
    problems = "; ".join(
        f"{program.keys['arguments']['malformed']} ({program.calls:,})" for program in malformed
    )
    return [
        Cause(
            kind="malformed_calls",
            says=f"malformed tool calls: {count / known:.1%} had arguments that cannot be used",
            evidence=f"{count:,} of {counted(known, 'call')}: {problems}",
            weight=count / known,
            lost=count / known,
        )
    ]


def _own_limit(permits: PermitWaits, calls: int, *, is_unsure: bool) -> Cause:
    """Return the client's own limit as a cause."""
    says = permits.says
    if is_unsure:
        says += "; or by a server that is full with as many, which this log does not tell"
    return Cause(
        kind="pace" if permits.pace else "rate_limit",
        says=says,
        evidence=permits.evidence,
        weight=permits.weight,
        lost=permits.without / calls,
    )


@dataclass(frozen=True, slots=True)
class _Outage:
    """When a sandbox was down."""

    began: float
    ended: float
    failure: FailureFit
    label: str


def _together(sandboxes: Sequence[SandboxFit], causes: Sequence[Cause]) -> list[Cause]:
    """Make one cause of sandboxes that were down at the same time."""
    found = list(causes)
    for kind in ("crash", "wedge"):
        for outages in _overlapping(_outages(sandboxes, kind)):
            labels = {outage.label for outage in outages}
            if len(labels) > 1:
                found = _joined(found, outages, sandboxes)
    return found


def _outages(sandboxes: Sequence[SandboxFit], kind: str) -> list[_Outage]:
    """Return the outages of a kind in the order in which they began."""
    found = []
    for sandbox in sandboxes:
        for failure in sandbox.failures:
            if failure.kind == kind and failure.between is not None:
                found.append(_Outage(*failure.between, failure, sandbox.label))
    return sorted(found, key=lambda outage: (outage.began, outage.ended))


def _overlapping(outages: Sequence[_Outage]) -> Iterator[list[_Outage]]:
    """Yield groups of outages of which each began before the others had ended."""
    group: list[_Outage] = []
    for outage in outages:
        if group and outage.began >= max(other.ended for other in group):
            yield group
            group = []
        group.append(outage)
    if group:
        yield group


def _joined(
    causes: Sequence[Cause], outages: Sequence[_Outage], sandboxes: Sequence[SandboxFit]
) -> list[Cause]:
    """Put one cause where the first of these outages stands, and leave the others out."""
    labels = {outage.label for outage in outages}
    said = {outage.failure.says for outage in outages}
    kind = outages[0].failure.kind
    parts = [
        cause
        for cause in causes
        if cause.kind == kind and cause.sandbox in labels and cause.says in said
    ]
    heaviest = max(parts, key=lambda cause: cause.weight)
    failed = sum(outage.failure.failed for outage in outages)
    tried = sum(outage.failure.of for outage in outages)
    requests = max(sum(sandbox.requests for sandbox in sandboxes), 1)
    who = f"{len(labels)} sandboxes"
    if len(labels) == len(sandboxes):
        who = f"all {who}"
    whole = Cause(
        kind=kind,
        says=f"{who}: {heaviest.says}",
        evidence=(
            f"{failed:,} of {counted(tried, 'request')} in that time failed; {heaviest.evidence}"
        ),
        weight=max(failed / requests, heaviest.weight),
        lost=sum(cause.lost for cause in parts),
    )
    place = causes.index(parts[0])
    left = [cause for cause in causes if cause not in parts]
    return [*left[:place], whole, *left[place:]]


def _cause_kind(failure: FailureFit) -> str:
    """Return the word for a failure: an outage, or how requests ended."""
    if failure.kind in ("crash", "wedge"):
        return failure.kind
    ending, status = failure.family
    name = ending
    if status == 429:
        name = "unknown_limit"
    elif ending == "status":
        name = f"status_{status}"
    return f"{name}_burst" if failure.kind == "burst" else name
