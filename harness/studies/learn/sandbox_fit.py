"""What is learned about each sandbox: its limit, what slowed it down, its failures, and whether it
is a slow one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfusion_tools.outcome import Outcome

from .attempts import SHORTEST, InFlight, Known, TimedAttempt
from .distributions import Fit, added_delay, sample_distance
from .failures import FailureFit, find_failures
from .overhead import Overhead, without_overhead
from .quota_fit import QuotaFit, find_quota
from .server_fit import find_server
from .slowness import Slowness, find_degradation, find_slow_spell, rank_correlation

_FEWEST = 40
"""Answers from which on a slowness is looked for (chosen)."""
_GAIN = 0.93
"""A cause is named if it leaves at most this share of the spread of the durations (chosen)."""
_CERTAIN = 10.0
"""How much likelier, as a logarithm, shared cores must be to be named although time explains as
much (chosen)."""
_GAIN_OF_A_SPELL = 0.9
"""The same, of a stretch of time, of which there are many to choose from (chosen)."""


def find_slowness(
    answered: Sequence[TimedAttempt],
    everything: Sequence[TimedAttempt],
    timed_out: Sequence[TimedAttempt],
    stopped: Sequence[TimedAttempt] = (),
) -> Slowness:
    """Compare the explanations by the spread of durations that each leaves, and return the best
    one."""
    durations = [max(request.seconds, SHORTEST) for request in answered]
    plain = Slowness(
        "none", tuple(durations), tuple(range(len(answered))), tuple(map(math.log, durations))
    )
    if len(answered) < _FEWEST:
        return plain
    found = find_server(answered, everything, stopped)
    plain = replace(plain, cores=found.cores)
    if found.kind not in ("none", "contention"):
        return found
    server = found if found.kind == "contention" else None
    by_time = find_degradation(answered, durations, timed_out)
    if by_time is not None and by_time.spread >= _GAIN * plain.spread:
        by_time = None
    spell = find_slow_spell(answered, durations)
    if spell is not None and spell.spread < (
        _GAIN_OF_A_SPELL * plain.spread if by_time is None else by_time.spread
    ):
        by_time = spell
    if server is None or by_time is None:
        return server or by_time or plain
    return _load_or_time(answered, everything, server, by_time)


def _load_or_time(
    answered: Sequence[TimedAttempt],
    everything: Sequence[TimedAttempt],
    by_load: Slowness,
    by_time: Slowness,
) -> Slowness:
    """Where answers are slow, more requests are in flight, and the other way round: which one was
    first?

    If load is the cause, durations depend on it also at times that are equally slow. If time is,
    they depend on time also where the load is the same.
    """
    busy = InFlight((request.began, request.ended) for request in everything)
    clear = max(0.15, 3 / math.sqrt(len(answered)))
    load_matters = (
        rank_correlation([busy.at(request.began) for request in answered], by_time.left) > clear
    )
    durations = (max(request.seconds, SHORTEST) for request in answered)
    expected = [math.log(took) - left for took, left in zip(durations, by_time.left, strict=True)]
    time_matters = rank_correlation(expected, by_load.left) > clear
    if load_matters != time_matters:
        return by_load if load_matters else by_time
    is_reported = all(request.attempt.execution_time is not None for request in answered)
    if is_reported and by_load.cores is not None and by_load.cores.gain >= _CERTAIN:
        return by_load
    best, other = sorted((by_load, by_time), key=lambda slowness: slowness.spread)
    return replace(
        best,
        evidence=f"{best.evidence}; this log does not tell it from {other.kind.replace('_', ' ')}",
    )


MOST_SANDBOXES = 64
"""Sandboxes that are modelled, the busiest first (chosen)."""
ENDED_EARLY = ("compile_error", "program_timeout")
"""How long these took says little about the sandbox."""
_SLOWER = 1.3
"""How many times as long as at the fastest its answers take at a slow one (chosen)."""
_APART = 0.2
"""The distance of two samples (Kolmogorov and Smirnov) from which on they differ (chosen)."""
_ENOUGH = 20
"""Answers from which on sandboxes are compared (chosen)."""


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
    overhead: Overhead | None = None
    """What requests take beside their programs, where nothing explains it."""
    slower: Fit | None = None
    """What it takes longer than the other sandboxes."""


def find_sandboxes(requests: Sequence[TimedAttempt], known: Known) -> tuple[SandboxFit, ...]:
    by_label: dict[str, list[TimedAttempt]] = {}
    for request in requests:
        by_label.setdefault(request.attempt.endpoint, []).append(request)
    labels = sorted(by_label, key=lambda label: (-len(by_label[label]), label))[:MOST_SANDBOXES]
    found = [_sandbox(label, by_label[label], known) for label in sorted(labels)]
    return tuple(_compared(found)) or (_sandbox("", [], known),)


def _sandbox(label: str, requests: Sequence[TimedAttempt], known: Known) -> SandboxFit:
    quota = find_quota(requests, known)
    refused = quota.refused if quota is not None else frozenset()
    inside = [request for place, request in enumerate(requests) if place not in refused]
    timed_out = [request for request in requests if request.ending == "hang"]
    timed = [request for request in requests if known == "durations" and _has_time(request)]
    answered = [request for request in timed if request.attempt.outcome not in ENDED_EARLY]
    stopped = [request for request in timed if request.attempt.outcome == "program_timeout"]

    slowness = find_slowness(answered, inside, timed_out, stopped)
    failures = _failures(requests, inside, refused, slowness, known=known)
    spans = _outages(failures)
    if spans:  # what waited for its end was not slow by itself
        answered = [request for request in answered if not _meets(request, spans)]
        slowness = find_slowness(answered, inside, timed_out, stopped)
        failures = _failures(requests, inside, refused, slowness, known=known)
    slowness, overhead = without_overhead(slowness, answered, inside)
    return SandboxFit(
        label=label,
        requests=len(requests),
        quota=quota,
        slowness=slowness,
        failures=tuple(failures),
        base=_base(slowness, answered, timed),
        overhead=overhead,
    )


def _has_time(request: TimedAttempt) -> bool:
    return request.ending == "answered" and request.attempt.seconds is not None


def _outages(failures: Sequence[FailureFit]) -> list[tuple[float, float]]:
    """Return when a sandbox answered nobody."""
    spans: list[tuple[float, float]] = []
    for failure in failures:
        if failure.kind in ("crash", "wedge") and failure.between is not None:
            spans.append(failure.between)
    return spans


def _meets(request: TimedAttempt, spans: Sequence[tuple[float, float]]) -> bool:
    """Was a request under way in one of these spans?"""
    return any(request.began < end and start < request.ended for start, end in spans)


def _base(
    slowness: Slowness, answered: Sequence[TimedAttempt], timed: Sequence[TimedAttempt]
) -> tuple[tuple[str | None, float], ...]:
    """Return outcome and seconds of each answer, without what slowed it down."""
    base: list[tuple[str | None, float]] = []
    for place, seconds in zip(slowness.kept, slowness.base, strict=True):
        base.append((answered[place].attempt.outcome, seconds))
    base += [(Outcome.OK, seconds) for seconds in slowness.longer_programs]
    for request in timed:
        if request.attempt.outcome in ENDED_EARLY:
            base.append((request.attempt.outcome, request.seconds))
    return tuple(base)


def _failures(
    requests: Sequence[TimedAttempt],
    inside: Sequence[TimedAttempt],
    refused: frozenset[int],
    slowness: Slowness,
    *,
    known: Known,
) -> list[FailureFit]:
    """Return the failures that are neither refusals by a limit nor answers that became too slow."""
    explained = set(refused)
    if slowness.kind in ("contention", "queue", "spawn", "degradation", "slowdown"):
        busy = InFlight((request.began, request.ended) for request in inside)
        for place, request in enumerate(requests):
            if (
                request.ending == "hang"
                and slowness.expected(request.began, busy.mean(request.began, request.ended))
                > request.seconds / 2
            ):
                explained.add(place)
    usual = statistics.median(slowness.base) if slowness.base else 0.0
    return find_failures(requests, frozenset(explained), usual, known)


def _seconds_of_answers(sandbox: SandboxFit) -> list[float]:
    """Return how long its answers took, without what slowed it down."""
    rest = sandbox.overhead.delay.median if sandbox.overhead is not None else 0.0
    return [seconds + rest for _, seconds in sandbox.base]


def _compared(sandboxes: list[SandboxFit]) -> list[SandboxFit]:
    """Find the sandboxes that are slower than the fastest one, whatever they were asked to do."""
    known = [sandbox for sandbox in sandboxes if len(sandbox.base) >= _ENOUGH]
    if len(known) < 2:
        return sandboxes
    fastest = min(known, key=lambda sandbox: statistics.median(_seconds_of_answers(sandbox)))
    quick = _seconds_of_answers(fastest)
    compared: list[SandboxFit] = []
    for sandbox in sandboxes:
        own = _seconds_of_answers(sandbox)
        is_slow = (
            sandbox in known
            and statistics.median(own) > _SLOWER * statistics.median(quick)
            and sample_distance(own, quick) > _APART
        )
        if is_slow:  # what it takes beside its programs is then why it is slow
            slower = added_delay(own, quick)
            compared.append(replace(sandbox, slower=slower, overhead=fastest.overhead))
        else:
            compared.append(sandbox)
    return compared
