"""Do programs share cores: does each get slower the more run beside it?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.slowness import SHORTEST, Slowness, rank_correlation, spread_of


def find_contention(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], durations: list[float]
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
    is_reported = all(one.record.run_seconds is not None for one in answered)
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
