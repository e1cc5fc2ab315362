"""What is learned about each sandbox: its limit, what slowed it down, its failures, and whether it is a slow one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfusion.harness.studies.learn.attempts import Known, LoggedRequest
from sfusion.harness.studies.learn.distributions import Fit, added_delay, sample_distance
from sfusion.harness.studies.learn.failures import FailureFit, find_failures
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.quota import QuotaFit, find_quota
from sfusion.harness.studies.learn.slowness import Slowness
from sfusion.harness.studies.learn.slowness_fit import find_slowness

MOST_SANDBOXES = 64
ENDED_EARLY = ("compile_error", "program_timeout")
"""How long these took says little about the sandbox."""
_SLOWER = 1.3
_APART = 0.2
_ENOUGH = 20


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


def find_sandboxes(requests: Sequence[LoggedRequest], known: Known) -> tuple[SandboxFit, ...]:
    by_label: dict[str, list[LoggedRequest]] = {}
    for one in requests:
        by_label.setdefault(one.record.sandbox, []).append(one)
    labels = sorted(by_label, key=lambda label: (-len(by_label[label]), label))[:MOST_SANDBOXES]
    found = [_sandbox(label, by_label[label], known) for label in sorted(labels)]
    return tuple(_compared(found)) or (_sandbox("", [], known),)


def _sandbox(label: str, requests: Sequence[LoggedRequest], known: Known) -> SandboxFit:
    quota = find_quota(requests, known)
    timed = [
        one for one in requests if known == "durations" and one.ending == "answered" and one.record.seconds is not None
    ]
    answered = [one for one in timed if one.record.outcome not in ENDED_EARLY]
    timed_out = [one for one in requests if one.ending == "hang"]
    refused = quota.refused if quota is not None else frozenset()
    inside = [one for place, one in enumerate(requests) if place not in refused]
    slowness = find_slowness(answered, inside, timed_out)
    failures = _failures(requests, inside, refused, slowness, known)
    outages = [one.between for one in failures if one.kind in ("crash", "wedge") and one.between is not None]
    if outages:  # what waited for its end was not slow by itself
        answered = [one for one in answered if not any(one.began < end and start < one.ended for start, end in outages)]
        slowness = find_slowness(answered, inside, timed_out)
        failures = _failures(requests, inside, refused, slowness, known)
    base = tuple(
        (answered[place].record.outcome, seconds) for place, seconds in zip(slowness.kept, slowness.base, strict=True)
    )
    base += tuple((one.record.outcome, one.seconds) for one in timed if one.record.outcome in ENDED_EARLY)
    return SandboxFit(label, len(requests), quota, slowness, tuple(failures), base)


def _failures(
    requests: Sequence[LoggedRequest],
    inside: Sequence[LoggedRequest],
    refused: frozenset[int],
    slowness: Slowness,
    known: Known,
) -> list[FailureFit]:
    """Return the failures that are neither refusals by a limit nor answers that became too slow."""
    explained = set(refused)
    if slowness.kind in ("contention", "degradation", "slowdown"):
        busy = InFlight((one.began, one.ended) for one in inside)
        for place, one in enumerate(requests):
            if one.ending == "hang" and slowness.expected(one.began, busy.mean(one.began, one.ended)) > one.seconds / 2:
                explained.add(place)
    usual = statistics.median(slowness.base) if slowness.base else 0.0
    return find_failures(requests, frozenset(explained), usual, known)


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
        compared.append(replace(one, slower=added_delay(own, quick)) if is_slow else one)
    return compared
