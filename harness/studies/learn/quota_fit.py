"""What limit of a sandbox explains the requests that it refused: a quota of requests at once or per
second, or a queue."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from sfusion_tools.wording import counted

from .attempts import InFlight, Known, TimedAttempt, loads_met
from .distributions import rounded

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
_NEVER_ABOVE = 0.02
"""The share of admitted requests that may seem to come with as many in flight as a limit admits: a
client may notice an end late (chosen)."""
_SOME_AT_THE_LIMIT = 0.25
"""The share of refusals that come with as many in flight (chosen). A server that counts connections
refuses others with fewer, while it closes those of earlier refusals."""
_AS_GOOD = 0.05
"""By how much more often a limit of requests in flight may be wrong than a rate and still be as
likely (chosen: a rate is rarely wrong where refusals are many, whatever the cause)."""
_EVENLY = 0.65
"""The share of admissions that follow the one before after about the time of a token, where a rate
decides (chosen: by chance it is under a half)."""
_ABOUT = 0.5, 1.75
"""What is about the time of a token, as its multiples (chosen)."""


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
        if not _FEWEST_REFUSALS <= len(refused) < len(requests):
            continue
        by_rate = _per_second(requests, refused, status)
        by_load = None
        if known == "durations":
            by_load = _in_flight(requests, refused, status)
        found = _likelier(by_load, by_rate, requests)
        if found is not None:
            return found
    return None


def _likelier(
    by_load: QuotaFit | None, by_rate: QuotaFit | None, requests: Sequence[TimedAttempt]
) -> QuotaFit | None:
    """Choose between a limit of requests in flight and one of their rate.

    A server that is always full admits the next request when one ends, which is a steady rate too;
    but a rate admits at even intervals.
    """
    if by_load is None or by_rate is None:
        return by_load or by_rate
    is_as_good = by_load.wrong <= by_rate.wrong + _AS_GOOD
    return by_load if is_as_good or not _is_even(requests, by_rate) else by_rate


def _is_even(requests: Sequence[TimedAttempt], by_rate: QuotaFit) -> bool:
    """Do admissions follow each other like tokens, while others are refused?"""
    began = [request.began for place, request in enumerate(requests) if place in by_rate.refused]
    spans = _empty_spans(sorted(began))
    token = 1 / float(by_rate.model["per_second"])
    gaps: list[float] = []
    for begin, end in spans:
        within = [
            request.began
            for place, request in enumerate(requests)
            if place not in by_rate.refused and begin <= request.began <= end
        ]
        gaps += [b - a for a, b in pairwise(within)]
    low, high = _ABOUT
    even = sum(low * token <= gap <= high * token for gap in gaps)
    return even >= _EVENLY * len(gaps)


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
    load_admitted = list(loads_met(admitted).values())
    limit, wrong = _split(load_refused, load_admitted)
    if limit is None or wrong > _CLEAR:
        limit = _ceiling(load_refused, load_admitted)
    if limit is None:
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


def _ceiling(refused: Sequence[int], admitted: Sequence[int]) -> int | None:
    """Return the number in flight with which nearly nothing was admitted, but much refused; None if
    there is none."""
    ordered = sorted(admitted)
    limit = ordered[int((1 - _NEVER_ABOVE) * (len(ordered) - 1))] + 1
    at_the_limit = sum(load >= limit for load in refused)
    return limit if at_the_limit >= _SOME_AT_THE_LIMIT * len(refused) else None


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
