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
    waits = [one.attempt.waited for one in requests if one.attempt.waited > _NOTICED]
    if not waits and not in_vain:
        return None
    busy = InFlight((one.began, one.ended) for one in requests)
    waiting = InFlight(
        (one.began - one.attempt.waited, one.began)
        for one in requests
        if one.attempt.waited > _NOTICED
    )
    # A client may notice an end after the next beginning, so for a moment there seem to be more
    # than the limit.
    limit = busy.lasting_peak(waiting) if len(waits) >= _MANY * len(requests) else busy.peak
    pace, burst = _pace(requests)
    total, spent = sum(waits) + sum(in_vain), sum(one.seconds for one in requests)
    return PermitWaits(
        max(limit, 1),
        len(waits),
        len(requests),
        statistics.median(waits or in_vain),
        total / (total + spent),
        total / max(len(requests), 1),
        len(in_vain),
        pace,
        burst,
    )


_EVENLY = 0.8
"""The share of requests that began at the same distance from the one before where a client has a
pace."""


def _pace(requests: Sequence[TimedAttempt]) -> tuple[float | None, int]:
    """How many requests per second a client begins that lets the others wait, and how many at once
    after a pause."""
    begins = [one.began for one in requests]
    gaps = [b - a for a, b in pairwise(begins)]
    after_waits = sorted(
        gap for gap, one in zip(gaps, requests[1:], strict=True) if one.attempt.waited > _NOTICED
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
    fatal = [one for one in requests if id(one.attempt) in last]
    of, size = max(len(calls), 1), max(len(requests), 1)
    time = sum(seconds for sandbox in sandboxes for _, seconds in sandbox.base) or 1.0
    for sandbox in sandboxes:
        label = sandbox.label if len(sandboxes) > 1 else ""
        part = sandbox.requests / size
        own = [one for one in fatal if one.attempt.endpoint == sandbox.label or not label]
        if (quota := sandbox.quota) is not None:
            lost = sum(one.attempt.status == quota.model.get("status", 429) for one in own) / of
            causes.append(
                Cause(
                    quota.kind, quota.says, quota.evidence, len(quota.refused) / size, label, lost
                )
            )
        slow = sandbox.slowness
        if slow.kind != "none" and not (quota is not None and slow.kind == quota.kind):
            lost = len(slow.longer_programs) / of
            causes.append(
                Cause(slow.kind, slow.says, slow.evidence, slow.weight * part, label, lost)
            )
        for one in sorted(sandbox.failures, key=lambda one: one.between is None):
            weight = one.failed / size
            if one.kind in ("crash", "wedge") and one.between:
                weight += (min(one.between[1], span) - one.between[0]) / max(span, 1e-9)
            explained = {id(request) for request in own if one.explains(request)}
            own = [request for request in own if id(request) not in explained]
            causes.append(
                Cause(_cause_kind(one), one.says, one.evidence, weight, label, len(explained) / of)
            )
        if (slower := sandbox.slower) is not None:
            others = statistics.median(
                s for one in sandboxes if one.slower is None for _, s in one.base
            )
            usual = statistics.median(s for _, s in sandbox.base)
            causes.append(
                Cause(
                    "slow_sandbox",
                    f"{label} takes {rounded(slower.median):g} s longer than the others",
                    (
                        f"median answer {usual:.3g} s ({len(sandbox.base):,} answers), "
                        f"{others:.3g} s elsewhere"
                    ),
                    slower.median * len(sandbox.base) / time,
                    label,
                )
            )
    causes = _together(sandboxes, causes)
    malformed = [one for one in programs if one.outcome == "bad_arguments"]
    if malformed:
        count, known = sum(one.calls for one in malformed), malformed[0].of
        problems = "; ".join(
            f"{one.keys['arguments']['malformed']} ({one.calls:,})" for one in malformed
        )
        says = f"malformed tool calls: {count / known:.1%} had arguments that cannot be used"
        evidence = f"{count:,} of {counted(known, 'call')}: {problems}"
        causes.append(Cause("malformed_calls", says, evidence, count / known, lost=count / known))
    serious = [one for one in causes if max(one.weight, one.lost) >= _SMALLEST] or causes
    found = sorted(serious, key=lambda one: one.harm, reverse=True)
    if permits is not None and permits.share >= _SERIOUS:
        kind, lost = "pace" if permits.pace else "rate_limit", permits.without / of
        doubt = (
            "; or by a server that is full with as many, which this log does not tell"
            if is_unsure
            else ""
        )
        own_limit = Cause(kind, permits.says + doubt, permits.evidence, permits.weight, lost=lost)
        # Requests that the server keeps for longer let others wait, so that is named first.
        bound = (False, min(permits.weight, _MATTERS))
        place = sum(one.harm > bound for one in found)
        found.insert(place, own_limit)
    return tuple(found)


def _together(sandboxes: Sequence[SandboxFit], causes: Sequence[Cause]) -> list[Cause]:
    """Make one cause of sandboxes that were down at the same time."""
    found = list(causes)
    for kind in ("crash", "wedge"):
        down = [
            (*one.between, one, sandbox.label)
            for sandbox in sandboxes
            for one in sandbox.failures
            if one.kind == kind and one.between is not None
        ]
        for group in _overlapping(sorted(down, key=lambda one: one[:2])):
            labels = {label for *_, label in group}
            if len(labels) < 2:
                continue
            says = {one.says for _, _, one, _ in group}
            parts = [
                one
                for one in found
                if one.kind == kind and one.sandbox in labels and one.says in says
            ]
            who = (
                f"all {len(labels)} sandboxes"
                if len(labels) == len(sandboxes)
                else f"{len(labels)} sandboxes"
            )
            failed, tried = (
                sum(one.failed for _, _, one, _ in group),
                sum(one.of for _, _, one, _ in group),
            )
            heaviest = max(parts, key=lambda one: one.weight)
            evidence = (
                f"{failed:,} of {counted(tried, 'request')} in that time failed; "
                f"{heaviest.evidence}"
            )
            weight = max(failed / max(sum(one.requests for one in sandboxes), 1), heaviest.weight)
            place = found.index(parts[0])
            found = [one for one in found if one not in parts]
            lost = sum(one.lost for one in parts)
            found.insert(place, Cause(kind, f"{who}: {heaviest.says}", evidence, weight, lost=lost))
    return found


_Down = tuple[float, float, FailureFit, str]


def _overlapping(down: Sequence[_Down]) -> Iterator[list[_Down]]:
    group: list[_Down] = []
    for one in down:
        if group and one[0] >= max(end for _, end, _, _ in group):
            yield group
            group = []
        group.append(one)
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
