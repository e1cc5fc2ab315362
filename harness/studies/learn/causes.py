"""Why calls failed or took longer, in the order of what it cost; also waits for permits."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sfusion_tools.outcome import FAILURES
from sfusion_tools.record import Call
from sfusion_tools.wording import counted

from .attempts import InFlight, TimedAttempt, outcome_of
from .distributions import rounded
from .failures import FailureFit
from .load import ProgramFit
from .sandbox_fit import SandboxFit

_NOTICED = 0.02
"""Seconds from which on a wait is one."""
_MANY = 0.05
"""The share of requests from which on waits say more about the limit than the most that were ever
in flight."""
_SERIOUS = 0.2
_LONG_WAIT = 0.1
"""Seconds for each request from which on waiting matters as much as failing."""


@dataclass(frozen=True, slots=True)
class PermitWaits:
    """How many requests the client lets through at a time, and what that cost."""

    limit: int
    waited: int
    of: int
    median: float
    share: float
    """The share of the time of all requests and their waits."""
    each: float
    """Seconds of waiting for each request, on average."""
    without: int = 0
    """Calls that waited and got none."""
    pace: float | None = None
    """Requests per second, where the client has a limit of those and it is the one that lets
    requests wait."""
    burst: int = 1

    @property
    def evidence(self) -> str:
        requests = counted(self.of, "request")
        how = (
            f"and began {1 / self.pace:.3g} s after the one before"
            if self.pace
            else f"with {self.limit} in flight"
        )
        waited = (
            f"{self.waited:,} of {requests} waited for a permit, {self.median:.3g} s each, {how}"
        )
        return f"{waited}; {counted(self.without, 'call')} got none" if self.without else waited

    @property
    def says(self) -> str:
        own = (
            f"requests_per_second {rounded(self.pace):g}"
            if self.pace
            else f"rate_limit {self.limit}"
        )
        return (
            f"limited by the client's own {own}: {self.share:.0%} of the time is waits for a permit"
        )

    @property
    def weight(self) -> float:
        return self.share * min(1.0, self.each / _LONG_WAIT)


def find_permit_waits(
    requests: Sequence[TimedAttempt], in_vain: Sequence[float] = ()
) -> PermitWaits | None:
    """None if nothing waited; calls that got no permit waited ``in_vain``."""
    waits = [request.attempt.waited for request in requests if request.attempt.waited > _NOTICED]
    if not waits and not in_vain:
        return None
    busy = InFlight((request.began, request.ended) for request in requests)
    waiting = InFlight(
        (request.began - request.attempt.waited, request.began)
        for request in requests
        if request.attempt.waited > _NOTICED
    )
    # A client may notice an end after the next beginning, so for a moment there seem to be more
    # than the limit.
    limit = busy.lasting_peak(waiting) if len(waits) >= _MANY * len(requests) else busy.peak
    pace, burst = _pace(requests)
    total = sum(waits) + sum(in_vain)
    spent = sum(request.seconds for request in requests)
    return PermitWaits(
        limit=max(limit, 1),
        waited=len(waits),
        of=len(requests),
        median=statistics.median(waits or in_vain),
        share=total / (total + spent),
        each=total / max(len(requests), 1),
        without=len(in_vain),
        pace=pace,
        burst=burst,
    )


_EVENLY = 0.8
"""The share of requests that began at the same distance from the one before where a client has a
pace."""


def _pace(requests: Sequence[TimedAttempt]) -> tuple[float | None, int]:
    """How many requests per second a client begins that lets the others wait, and how many at once
    after a pause."""
    begins = [request.began for request in requests]
    gaps = [b - a for a, b in pairwise(begins)]
    after_waits = sorted(
        gap
        for gap, request in zip(gaps, requests[1:], strict=True)
        if request.attempt.waited > _NOTICED
    )
    if len(after_waits) < _FEWEST_PACED or (usual := statistics.median(after_waits)) <= 0:
        return None, 1
    even = bisect_right(after_waits, 1.1 * usual) - bisect_left(after_waits, 0.9 * usual)
    if even < _EVENLY * len(after_waits):
        return None, 1
    at_once = max(
        bisect_right(begins, at + _SOME * usual) - place for place, at in enumerate(begins)
    )
    return 1 / usual, max(1, at_once - _SOME)


_FEWEST_PACED = 20
_SOME = 5
"""Requests of a pace, within whose time those beyond it came at once."""


_SMALLEST = 0.005
"""The share of what it cost up to which a cause is not worth a line beside others."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why calls failed or took longer."""

    kind: str
    """quota, queue, contention, degradation, slow_spell, slowdown, crash, wedge, slow_sandbox,
    malformed_calls, rate_limit, unknown_limit or an ending."""
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


_MATTERS = 0.05
"""The weight from which on a cause may be the reason for waits for permits."""


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
    """First what made calls fail, then what cost time; ``is_unsure``: the server may have been
    full, or not."""
    causes: list[Cause] = []
    failed = [call for call in calls if outcome_of(call) in FAILURES]
    last = {id(call.attempts[-1]) for call in failed if call.attempts}
    fatal = [request for request in requests if id(request.attempt) in last]
    of = max(len(calls), 1)
    size = max(len(requests), 1)
    time = sum(seconds for sandbox in sandboxes for _, seconds in sandbox.base) or 1.0
    for sandbox in sandboxes:
        label = sandbox.label if len(sandboxes) > 1 else ""
        part = sandbox.requests / size
        own = [
            request for request in fatal if request.attempt.endpoint == sandbox.label or not label
        ]
        if (quota := sandbox.quota) is not None:
            lost = (
                sum(request.attempt.status == quota.model.get("status", 429) for request in own)
                / of
            )
            causes.append(
                Cause(
                    kind=quota.kind,
                    says=quota.says,
                    evidence=quota.evidence,
                    weight=len(quota.refused) / size,
                    sandbox=label,
                    lost=lost,
                )
            )
        slow = sandbox.slowness
        if slow.kind != "none" and not (quota is not None and slow.kind == quota.kind):
            lost = len(slow.longer_programs) / of
            causes.append(
                Cause(
                    kind=slow.kind,
                    says=slow.says,
                    evidence=slow.evidence,
                    weight=slow.weight * part,
                    sandbox=label,
                    lost=lost,
                )
            )
        for failure in sorted(sandbox.failures, key=lambda failure: failure.between is None):
            weight = failure.failed / size
            if failure.kind in ("crash", "wedge") and failure.between:
                weight += (min(failure.between[1], span) - failure.between[0]) / max(span, 1e-9)
            explained = {id(request) for request in own if failure.explains(request)}
            own = [request for request in own if id(request) not in explained]
            causes.append(
                Cause(
                    kind=_cause_kind(failure),
                    says=failure.says,
                    evidence=failure.evidence,
                    weight=weight,
                    sandbox=label,
                    lost=len(explained) / of,
                )
            )
        if (slower := sandbox.slower) is not None:
            others = statistics.median(
                s for sandbox in sandboxes if sandbox.slower is None for _, s in sandbox.base
            )
            usual = statistics.median(s for _, s in sandbox.base)
            causes.append(
                Cause(
                    kind="slow_sandbox",
                    says=f"{label} takes {rounded(slower.median):g} s longer than the others",
                    evidence=(
                        f"median answer {usual:.3g} s ({len(sandbox.base):,} answers), "
                        f"{others:.3g} s elsewhere"
                    ),
                    weight=slower.median * len(sandbox.base) / time,
                    sandbox=label,
                )
            )
    causes = _together(sandboxes, causes)
    malformed = [program for program in programs if program.outcome == "bad_arguments"]
    if malformed:
        count = sum(program.calls for program in malformed)
        known = malformed[0].of
        problems = "; ".join(
            f"{program.keys['arguments']['malformed']} ({program.calls:,})" for program in malformed
        )
        says = f"malformed tool calls: {count / known:.1%} had arguments that cannot be used"
        evidence = f"{count:,} of {counted(known, 'call')}: {problems}"
        causes.append(Cause("malformed_calls", says, evidence, count / known, lost=count / known))
    serious = [cause for cause in causes if max(cause.weight, cause.lost) >= _SMALLEST] or causes
    found = sorted(serious, key=lambda cause: cause.harm, reverse=True)
    if permits is not None and permits.share >= _SERIOUS:
        kind = "pace" if permits.pace else "rate_limit"
        lost = permits.without / of
        doubt = (
            "; or by a server that is full with as many, which this log does not tell"
            if is_unsure
            else ""
        )
        own_limit = Cause(kind, permits.says + doubt, permits.evidence, permits.weight, lost=lost)
        # Requests that the server keeps for longer let others wait, so that is named first.
        bound = (False, min(permits.weight, _MATTERS))
        place = sum(cause.harm > bound for cause in found)
        found.insert(place, own_limit)
    return tuple(found)


def _together(sandboxes: Sequence[SandboxFit], causes: Sequence[Cause]) -> list[Cause]:
    """Make one cause of sandboxes that were down at the same time."""
    found = list(causes)
    for kind in ("crash", "wedge"):
        down = [
            (*failure.between, failure, sandbox.label)
            for sandbox in sandboxes
            for failure in sandbox.failures
            if failure.kind == kind and failure.between is not None
        ]
        for group in _overlapping(sorted(down, key=lambda outage: outage[:2])):
            labels = {label for *_, label in group}
            if len(labels) < 2:
                continue
            says = {one.says for _, _, one, _ in group}
            parts = [
                cause
                for cause in found
                if cause.kind == kind and cause.sandbox in labels and cause.says in says
            ]
            who = (
                f"all {len(labels)} sandboxes"
                if len(labels) == len(sandboxes)
                else f"{len(labels)} sandboxes"
            )
            failed = sum(one.failed for _, _, one, _ in group)
            tried = sum(one.of for _, _, one, _ in group)
            heaviest = max(parts, key=lambda cause: cause.weight)
            evidence = (
                f"{failed:,} of {counted(tried, 'request')} in that time failed; "
                f"{heaviest.evidence}"
            )
            weight = max(
                failed / max(sum(sandbox.requests for sandbox in sandboxes), 1), heaviest.weight
            )
            place = found.index(parts[0])
            found = [cause for cause in found if cause not in parts]
            lost = sum(cause.lost for cause in parts)
            found.insert(place, Cause(kind, f"{who}: {heaviest.says}", evidence, weight, lost=lost))
    return found


_Down = tuple[float, float, FailureFit, str]


def _overlapping(down: Sequence[_Down]) -> Iterator[list[_Down]]:
    group: list[_Down] = []
    for outage in down:
        if group and outage[0] >= max(end for _, end, _, _ in group):
            yield group
            group = []
        group.append(outage)
    if group:
        yield group


def _cause_kind(one: FailureFit) -> str:
    if one.kind in ("crash", "wedge"):
        return one.kind
    ending, status = one.family
    name = (
        "unknown_limit" if status == 429 else f"status_{status}" if ending == "status" else ending
    )
    return f"{name}_burst" if one.kind == "burst" else name
