"""What is learned about each sandbox: its limit, what slowed it down, its failures, and whether it
is a slow one."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

from sfusion_tools.outcome import Outcome
from sfusion_tools.wording import counted

from .attempts import SHORTEST, InFlight, Known, TimedAttempt
from .distributions import Fit, added_delay, rounded, sample_distance
from .failures import FailureFit, find_failures
from .server_fit import find_server
from .slowness import Slowness, find_degradation, find_slow_spell, rank_correlation

REFUSALS = (429, 503)
_FEWEST_REFUSALS = 5
"""Refusals from which on a limit is looked for (chosen)."""
_ROUGH = 0.5
"""Tokens by which a bucket's level may be misjudged (chosen)."""
_CLOSE = 1.0
"""Seconds between refusals in which others may have been rare (chosen)."""
_LEAST_SECONDS = 2.0
"""Seconds of refusals from which on they tell a rate (chosen)."""
_CLEAR = 0.2
"""The share of wrong guesses up to which a limit explains who was refused (chosen)."""


@dataclass(frozen=True, slots=True)
class QuotaFit:
    """A limit, with the refusals that it explains."""

    kind: Literal["quota", "queue"]
    """A queue if requests are seen to wait in the server, else a quota."""
    model: dict[str, Any]
    says: str
    evidence: str
    refused: frozenset[int]
    """Places of the refused requests in the sample."""
    wrong: float
    """How often it is wrong about a request, averaged over refused and admitted ones."""


def find_quota(requests: Sequence[TimedAttempt], known: Known) -> QuotaFit | None:
    """Return the limit that explains the refusals; None if there are few, or if they came at any
    load."""
    if known == "order":
        return None
    for status in REFUSALS:
        refused = frozenset(
            place
            for place, request in enumerate(requests)
            if request.ending == "status" and request.attempt.status == status
        )
        if _FEWEST_REFUSALS <= len(refused) < len(requests):
            found = [_per_second(requests, refused, status)]
            if known == "durations":
                found.insert(0, _in_flight(requests, refused, status))
            if any(found):
                return min(
                    (quota for quota in found if quota is not None), key=lambda quota: quota.wrong
                )
    return None


def _in_flight(
    requests: Sequence[TimedAttempt], refused: frozenset[int], status: int
) -> QuotaFit | None:
    admitted = [request for place, request in enumerate(requests) if place not in refused]
    busy = InFlight((request.began, request.ended) for request in admitted)
    # A refusal is decided when it is answered, and that is quick.
    load_refused = [
        max(busy.at(ended), busy.after(ended))
        for ended in (requests[place].ended for place in refused)
    ]
    load_admitted = [busy.at(request.began) for request in admitted]
    limit, wrong = _split(load_refused, load_admitted)
    if limit is None or wrong > _CLEAR:
        return None
    above = sum(load >= limit for load in load_refused)
    evidence = (
        f"{above:,} of {counted(len(refused), 'refusal')} came with {limit} or more in flight, "
        f"{sum(load < limit for load in load_admitted):,} of {len(admitted):,} other "
        "requests with fewer"
    )
    asked = _retry_after(requests, refused)
    running = _running_peak(admitted)
    if running is not None and running < 0.8 * limit:
        model = _queue_model(running, limit - running, status, asked)
        says = f"{running} run at a time, {limit - running} wait, the rest get {status}"
        return QuotaFit(
            kind="queue", model=model, says=says, evidence=evidence, refused=refused, wrong=wrong
        )
    says = f"{limit} in flight, the rest get {status}"
    if asked is None:  # a quota of the fake always sends Retry-After
        model = _queue_model(limit, 0, status, None)
        return QuotaFit(
            kind="quota",
            model=model,
            says=f"{says} without Retry-After",
            evidence=evidence,
            refused=refused,
            wrong=wrong,
        )
    model = {"kind": "quota", "in_flight": limit, "retry_after": rounded(asked)}
    if status != 429:
        model["status"] = status
    return QuotaFit(
        kind="quota",
        model=model,
        says=f"{says} with Retry-After {rounded(asked):g} s",
        evidence=evidence,
        refused=refused,
        wrong=wrong,
    )


def _queue_model(
    workers: int, waiting: int, status: int, retry_after: float | None
) -> dict[str, Any]:
    model: dict[str, Any] = {
        "kind": "queue",
        "workers": workers,
        "waiting": waiting,
        "status": status,
    }
    return model if retry_after is None else {**model, "retry_after": rounded(retry_after)}


def _per_second(
    requests: Sequence[TimedAttempt], refused: frozenset[int], status: int
) -> QuotaFit | None:
    """Return the rate that explains the refusals; None if none does."""
    starts = [request.began for place, request in enumerate(requests) if place not in refused]
    asked = _retry_after(requests, refused, steady=True)
    spans = _empty_spans(sorted(requests[place].began for place in refused))
    seconds = sum(end - begin for begin, end in spans)
    within = sum(
        max(0, bisect_left(starts, end) - bisect_right(starts, begin)) for begin, end in spans
    )
    rates = []
    if seconds >= _LEAST_SECONDS and within:
        rates.append(within / seconds)
    told = [requests[place].attempt.retry_after for place in refused]
    waits = [wait for wait in told if wait]
    if waits and asked is None:  # each was told when the next token comes
        rates.append(1 / max(waits))

    best = _best_bucket(requests, refused, starts, rates)
    if best is None or best.wrong > _CLEAR / 2:
        return None
    model: dict[str, Any] = {
        "kind": "quota",
        "per_second": rounded(best.rate),
        "burst": best.burst,
    }
    if status != 429:
        model["status"] = status
    if asked is not None:
        model["retry_after"] = rounded(asked)
    in_time = len(refused) - best.early
    return QuotaFit(
        kind="quota",
        model=model,
        says=f"{rounded(best.rate):g} requests per second, the rest get {status}",
        evidence=(
            f"{within:,} requests were admitted in the {seconds:.3g} s in which refusals "
            f"followed each other; {in_time:,} of {counted(len(refused), 'refusal')} came "
            "when that rate was used up"
        ),
        refused=refused,
        wrong=best.wrong,
    )


def _empty_spans(refusals: Sequence[float]) -> list[tuple[float, float]]:
    """Return the stretches in which refusals follow each other closely.

    There the bucket is empty, and every token is used at once.
    """
    edges = [place for place, (a, b) in enumerate(pairwise(refusals), 1) if b - a > _CLOSE]
    bounds = pairwise([0, *edges, len(refusals)])
    return [(refusals[first], refusals[last - 1]) for first, last in bounds]


@dataclass(frozen=True, slots=True, order=True)
class _Bucket:
    """A rate and a burst, in the order of how well they explain who was refused."""

    wrong: float
    early: int
    """Refusals that came too early for it."""
    rate: float
    burst: int


_NEAR = (0.9, 0.95, 1.0, 1.05, 1.1)
"""Rates around a guess that are tried as well, as its multiples (chosen)."""


def _best_bucket(
    requests: Sequence[TimedAttempt],
    refused: frozenset[int],
    starts: Sequence[float],
    rates: Sequence[float],
) -> _Bucket | None:
    """Return the bucket that is wrong least often, near one of these rates."""
    found = []
    for guess in rates:
        for factor in _NEAR:
            rate = guess * factor
            burst = _most_at_once(starts, rate)
            wrong, early = _wrong(requests, refused, rate, burst)
            found.append(_Bucket(wrong, early, rate, burst))
    return min(found, default=None)


def _wrong(
    requests: Sequence[TimedAttempt], refused: frozenset[int], rate: float, burst: int
) -> tuple[float, int]:
    """How often such a bucket is wrong, averaged over both kinds, and how many refusals came too
    early for it."""
    levels = list(_levels(requests, refused, rate, burst))
    early = sum(level >= min(1.0 + _ROUGH, burst) for level, is_refused in levels if is_refused)
    late = sum(level < 1.0 - _ROUGH for level, is_refused in levels if not is_refused)
    return (early / len(refused) + late / (len(requests) - len(refused))) / 2, early


def _most_at_once(starts: Sequence[float], rate: float) -> int:
    """The least size of a bucket that could have let these requests through."""
    most = level = 0.0
    for gap in (0.0, *(b - a for a, b in pairwise(starts))):
        level = max(0.0, level - gap * rate) + 1.0
        most = max(most, level)
    return max(1, round(most))


def _levels(
    requests: Sequence[TimedAttempt], refused: frozenset[int], rate: float, burst: int
) -> Iterator[tuple[float, bool]]:
    """The tokens that a bucket of this rate would have had at each request, corrected by what it
    did."""
    tokens = float(burst)
    at = requests[0].began
    # Of several at the same time, those that were admitted came first.
    for place in sorted(
        range(len(requests)), key=lambda place: (requests[place].began, place in refused)
    ):
        began = requests[place].began
        tokens = min(float(burst), tokens + (began - at) * rate)
        at = began
        yield tokens, place in refused
        tokens = min(tokens, 1.0) if place in refused else max(0.0, tokens - 1.0)


def _split(refused: Sequence[int], admitted: Sequence[int]) -> tuple[int | None, float]:
    """The number from which on requests are refused, and how often that is wrong, averaged over
    both kinds."""
    best: tuple[int | None, float] = (None, 1.0)
    refused = sorted(refused)
    admitted = sorted(admitted)
    for limit in range(1, max(refused[-1], admitted[-1]) + 1):
        missed = bisect_left(refused, limit) / len(refused)
        wrong = 1 - bisect_left(admitted, limit) / len(admitted)
        if (missed + wrong) / 2 <= best[1]:
            best = limit, (missed + wrong) / 2
    return best


def _retry_after(
    requests: Sequence[TimedAttempt], refused: frozenset[int], *, steady: bool = False
) -> float | None:
    """What most refusals asked for; None if they asked for nothing, or where it must be ``steady``
    and is not."""
    told = [requests[place].attempt.retry_after for place in refused]
    asked = [wait for wait in told if wait is not None]
    if steady and asked and max(asked) > 1.2 * min(asked):
        return None
    return statistics.median(asked) if len(asked) > len(refused) / 2 else None


def _running_peak(admitted: Sequence[TimedAttempt]) -> int | None:
    """How many programs ran at once, where the sandbox reports how long they ran."""
    spans = [
        (request.ended - request.attempt.execution_time, request.ended)
        for request in admitted
        if request.attempt.execution_time is not None
    ]
    return InFlight(spans).lasting_peak() if len(spans) > len(admitted) / 2 else None


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
    outages = [failure.between for failure in failures if failure.kind in ("crash", "wedge")]
    spans = [span for span in outages if span is not None]
    if spans:  # what waited for its end was not slow by itself
        answered = [request for request in answered if not _meets(request, spans)]
        slowness = find_slowness(answered, inside, timed_out, stopped)
        failures = _failures(requests, inside, refused, slowness, known=known)
    return SandboxFit(
        label=label,
        requests=len(requests),
        quota=quota,
        slowness=slowness,
        failures=tuple(failures),
        base=_base(slowness, answered, timed),
    )


def _has_time(request: TimedAttempt) -> bool:
    return request.ending == "answered" and request.attempt.seconds is not None


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


def _median_seconds(sandbox: SandboxFit) -> float:
    return statistics.median(seconds for _, seconds in sandbox.base)


def _compared(sandboxes: list[SandboxFit]) -> list[SandboxFit]:
    """Find the sandboxes that are slower than the fastest one, whatever they were asked to do."""
    known = [sandbox for sandbox in sandboxes if len(sandbox.base) >= _ENOUGH]
    if len(known) < 2:
        return sandboxes
    fastest = min(known, key=_median_seconds)
    quick = [seconds for _, seconds in fastest.base]
    compared: list[SandboxFit] = []
    for sandbox in sandboxes:
        own = [seconds for _, seconds in sandbox.base]
        is_slow = (
            sandbox in known
            and statistics.median(own) > _SLOWER * statistics.median(quick)
            and sample_distance(own, quick) > _APART
        )
        compared.append(replace(sandbox, slower=added_delay(own, quick)) if is_slow else sandbox)
    return compared
