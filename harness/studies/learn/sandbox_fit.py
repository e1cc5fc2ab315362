"""What is learned about each sandbox: its limit, what slowed it down, its failures, and whether it is a slow one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfusion.harness.studies.learn.attempts import SHORTEST, InFlight, Known, TimedAttempt
from sfusion.harness.studies.learn.distributions import Fit, added_delay, sample_distance
from sfusion.harness.studies.learn.failures import FailureFit, find_failures
from sfusion.harness.studies.learn.quota import QuotaFit, find_quota
from sfusion.harness.studies.learn.server_fit import find_server
from sfusion.harness.studies.learn.slowness import Slowness, find_degradation, find_slow_spell, rank_correlation
from sfusion_tools.outcome import Outcome

_FEWEST = 40
_GAIN = 0.93
"""A cause is named if it leaves at most this share of the spread of the durations."""
_CERTAIN = 10.0
"""How much likelier, as a logarithm, shared cores must be to be named although time explains as much."""
_GAIN_OF_A_SPELL = 0.9
"""The same, of a stretch of time, of which there are many to choose from."""


def find_slowness(
    answered: Sequence[TimedAttempt],
    everything: Sequence[TimedAttempt],
    timed_out: Sequence[TimedAttempt],
    stopped: Sequence[TimedAttempt] = (),
) -> Slowness:
    """Compare the explanations by the spread of durations that each leaves, and return the best one."""
    durations = [max(one.seconds, SHORTEST) for one in answered]
    plain = Slowness("none", tuple(durations), tuple(range(len(answered))), tuple(map(math.log, durations)))
    if len(answered) < _FEWEST:
        return plain
    server: Slowness | None = find_server(answered, everything, stopped)
    assert server is not None
    plain = replace(plain, cores=server.cores)
    if server.kind == "none":
        server = None
    elif server.kind != "contention":
        return server
    by_time = find_degradation(answered, durations, timed_out)
    if by_time is not None and by_time.spread >= _GAIN * plain.spread:
        by_time = None
    spell = find_slow_spell(answered, durations)
    if spell is not None and spell.spread < (_GAIN_OF_A_SPELL * plain.spread if by_time is None else by_time.spread):
        by_time = spell
    if server is None or by_time is None:
        return server or by_time or plain
    return _load_or_time(answered, everything, server, by_time)


def _load_or_time(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], by_load: Slowness, by_time: Slowness
) -> Slowness:
    """Where answers are slow, more requests are in flight, and the other way round: which one was first?

    If load is the cause, durations depend on it also at times that are equally slow. If time is, they depend on time
    also where the load is the same.
    """
    busy = InFlight((one.began, one.ended) for one in everything)
    clear = max(0.15, 3 / math.sqrt(len(answered)))
    load_matters = rank_correlation([busy.at(one.began) for one in answered], by_time.left) > clear
    durations = (max(one.seconds, SHORTEST) for one in answered)
    expected = [math.log(took) - left for took, left in zip(durations, by_time.left, strict=True)]
    time_matters = rank_correlation(expected, by_load.left) > clear
    if load_matters != time_matters:
        return by_load if load_matters else by_time
    is_reported = all(one.attempt.execution_time is not None for one in answered)
    if is_reported and by_load.cores is not None and by_load.cores.gain >= _CERTAIN:
        return by_load
    best, other = sorted((by_load, by_time), key=lambda one: one.spread)
    return replace(best, evidence=f"{best.evidence}; this log does not tell it from {other.kind.replace('_', ' ')}")


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


def find_sandboxes(requests: Sequence[TimedAttempt], known: Known) -> tuple[SandboxFit, ...]:
    by_label: dict[str, list[TimedAttempt]] = {}
    for one in requests:
        by_label.setdefault(one.attempt.endpoint, []).append(one)
    labels = sorted(by_label, key=lambda label: (-len(by_label[label]), label))[:MOST_SANDBOXES]
    found = [_sandbox(label, by_label[label], known) for label in sorted(labels)]
    return tuple(_compared(found)) or (_sandbox("", [], known),)


def _sandbox(label: str, requests: Sequence[TimedAttempt], known: Known) -> SandboxFit:
    quota = find_quota(requests, known)
    timed = [
        one for one in requests if known == "durations" and one.ending == "answered" and one.attempt.seconds is not None
    ]
    answered = [one for one in timed if one.attempt.outcome not in ENDED_EARLY]
    timed_out = [one for one in requests if one.ending == "hang"]
    refused = quota.refused if quota is not None else frozenset()
    inside = [one for place, one in enumerate(requests) if place not in refused]
    stopped = [one for one in timed if one.attempt.outcome == "program_timeout"]
    slowness = find_slowness(answered, inside, timed_out, stopped)
    failures = _failures(requests, inside, refused, slowness, known)
    outages = [one.between for one in failures if one.kind in ("crash", "wedge") and one.between is not None]
    if outages:  # what waited for its end was not slow by itself
        answered = [one for one in answered if not any(one.began < end and start < one.ended for start, end in outages)]
        slowness = find_slowness(answered, inside, timed_out, stopped)
        failures = _failures(requests, inside, refused, slowness, known)
    base = tuple(
        (answered[place].attempt.outcome, seconds) for place, seconds in zip(slowness.kept, slowness.base, strict=True)
    )
    base += tuple((Outcome.OK, seconds) for seconds in slowness.longer_programs)
    base += tuple((one.attempt.outcome, one.seconds) for one in timed if one.attempt.outcome in ENDED_EARLY)
    return SandboxFit(label, len(requests), quota, slowness, tuple(failures), base)


def _failures(
    requests: Sequence[TimedAttempt],
    inside: Sequence[TimedAttempt],
    refused: frozenset[int],
    slowness: Slowness,
    known: Known,
) -> list[FailureFit]:
    """Return the failures that are neither refusals by a limit nor answers that became too slow."""
    explained = set(refused)
    if slowness.kind in ("contention", "queue", "spawn", "degradation", "slowdown"):
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
