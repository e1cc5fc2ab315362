"""Do answers get slower with the load: because programs share cores, or because they wait for a free worker?"""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterator, Sequence

from sfusion.harness.studies.learn.attempts import TimedAttempt
from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.slowness import SHORTEST, Slowness, rank_correlation, spread_of


def find_contention(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], durations: list[float]
) -> Slowness | None:
    busy = InFlight((one.began, one.ended) for one in everything)
    loads = [max(1.0, busy.mean(one.began, one.ended)) for one in answered]
    if busy.peak < 2 or rank_correlation(loads, durations) < max(0.15, 3 / math.sqrt(len(durations))):
        return None
    best: tuple[float, float, list[float]] | None = None
    steps = 8 * busy.peak.bit_length()
    for number in range(steps + 1):
        cores = busy.peak ** (number / steps)

        def speed(count: int, cores: float = cores) -> float:
            return min(1.0, cores / count) if count > 0 else 1.0

        given = busy.integral(speed)
        work = [max(busy.between(given, speed, one.began, one.ended), SHORTEST) for one in answered]
        deviation = statistics.pstdev([math.log(one) for one in work])
        if best is None or deviation < best[1]:
            best = cores, deviation, work
    assert best is not None
    cores, _, work = best
    usual = statistics.median(work)
    left = tuple(math.log(one / usual) for one in work)
    few = [d for d, load in zip(durations, loads, strict=True) if load <= cores]
    many = [d for d, load in zip(durations, loads, strict=True) if load > cores]
    if not many or cores > 0.9 * busy.peak:
        return None
    is_reported = all(one.attempt.execution_time is not None for one in answered)
    doubt = "" if is_reported else "; without reported execution times, a queue would look the same"
    alone = f"{statistics.median(few):.3g} s" if few else "unknown"
    return Slowness(
        "contention",
        tuple(work),
        tuple(range(len(work))),
        left,
        model={"cores": rounded(cores)},
        says=f"programs share about {rounded(cores):g} cores: beyond that many in flight each one gets slower",
        evidence=f"median answer {alone} with up to {cores:.3g} in flight, {statistics.median(many):.3g} s with more; "
        f"spread of the durations {spread_of([math.log(d) for d in durations]):.2f} before correction, "
        f"{spread_of(left):.2f} after it{doubt}",
        lost=1 - sum(work) / sum(durations),
    )


_SERIOUS = 0.2
"""The share of the time of all answers from which on waiting matters."""
_TRIED = 32
"""Numbers of workers that are tried before those around the best of them."""
_WRONG = 0.2
"""The share of all waits by which those of a line may be wrong."""
_BETTER = 0.35
"""The same, of what is wrong if each is expected to be as long as the median."""


def find_waiting_line(answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt]) -> Slowness | None:
    """Predict when each program started from the ends of the requests before it; None if that is not when it did.

    This needs the execution times that a sandbox reports: what a request took beside that, it waited.
    """
    ran = [seconds for one in answered if (seconds := one.attempt.execution_time) is not None]
    if len(ran) < len(answered):
        return None
    waits = [max(0.0, one.seconds - seconds) for one, seconds in zip(answered, ran, strict=True)]
    waited = sum(waits)
    lost = waited / max(sum(one.seconds for one in answered), SHORTEST)
    if lost < _SERIOUS:
        return None
    running = InFlight((one.began + wait, one.ended) for one, wait in zip(answered, waits, strict=True))
    beside = sum(running.mean(one.began, one.began + wait) * wait for one, wait in zip(answered, waits, strict=True))
    busy = beside / waited

    def error(workers: int) -> float:
        return sum(abs(a - b) for a, b in zip(_line_waits(answered, everything, workers), waits, strict=True))

    low, high = max(1, int(0.5 * busy)), int(1.5 * busy) + 2
    step = 1 + (high - low) // _TRIED
    _, near = min((error(number), number) for number in range(low, high, step))
    wrong, workers = min((error(number), number) for number in range(max(1, near - step + 1), near + step))
    middle = statistics.median(waits)
    if wrong > _WRONG * waited or wrong > _BETTER * sum(abs(one - middle) for one in waits):
        return None
    return Slowness(
        "queue",
        tuple(max(one, SHORTEST) for one in ran),
        tuple(range(len(answered))),
        model={"kind": "queue", "workers": workers},
        says=f"{workers} programs run at a time, the others wait in the server",
        evidence=f"{lost:.0%} of the time of requests is before their programs ran; a line before {workers} workers "
        f"predicts these waits with an error of {wrong / waited:.0%}",
        lost=lost,
    )


def _line_waits(answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], workers: int) -> Iterator[float]:
    """How long each request waits if it starts as soon as fewer than ``workers`` before it have not ended."""
    latest: list[float] = []
    following = iter(answered)
    one = next(following, None)
    for other in everything:
        if other is one:
            yield max(0.0, latest[0] - other.began) if len(latest) == workers else 0.0
            one = next(following, None)
        if len(latest) < workers:
            heapq.heappush(latest, other.ended)
        else:
            heapq.heappushpop(latest, other.ended)
