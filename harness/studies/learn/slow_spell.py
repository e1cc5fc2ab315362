"""Was there a time in which answers took longer, or a moment since which they do?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import accumulate

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.distributions import added_delay, rounded
from sfusion.harness.studies.learn.slowness import Slowness, spread_of

_BINS = 24
_FEWEST = 8
_LONGER = 1.5
_SURE = 5.0
"""Deviations that a spell differs from the rest, since the best of hundreds is taken."""


def find_slow_spell(answered: Sequence[LoggedRequest], durations: list[float]) -> Slowness | None:
    """A stretch of time in which answers took longer than before and after, or from which on they did."""
    logs = [math.log(one) for one in durations]
    found = _stretch(logs)
    if found is None:
        return None
    first, last = found
    for_good = last == len(answered)
    kept = [place for place in range(len(answered)) if not first <= place < last]
    quick = [durations[place] for place in kept]
    usual, slow = statistics.median(quick), statistics.median(durations[first:last])
    began = answered[first].began
    # Where all callers wait for slow answers, the next request comes long after the last slow one.
    ended = math.inf if for_good else (answered[last - 1].began + answered[last].began) / 2
    if ended <= began:
        return None
    delay = added_delay(durations[first:last], quick)
    when = f"since {began:.3g} s" if for_good else f"from {began:.3g} s to {ended:.3g} s"
    return Slowness(
        "slowdown" if for_good else "slow_spell",
        tuple(quick),
        tuple(kept),
        tuple(log - math.log(slow if first <= place < last else usual) for place, log in enumerate(logs)),
        what={"delay": delay.yaml},
        between=(began, ended),
        longer=slow - usual,
        says=f"answers took {rounded(slow - usual):g} s longer {when}",
        evidence=f"median answer {slow:.3g} s in that time ({last - first:,} answers), {usual:.3g} s otherwise; "
        f"the delay: {delay}",
        lost=(slow - usual) * (last - first) / sum(durations),
    )


def _stretch(logs: Sequence[float]) -> tuple[int, int] | None:
    """The places between which logarithms differ most from the others; first by parts, then exactly."""
    spread, sums = spread_of(logs), list(accumulate(logs, initial=0.0))
    size = len(logs)

    def gain(first: int, last: int) -> float:
        inside, outside = last - first, size - last + first
        if inside < _FEWEST or outside < _FEWEST:
            return 0.0
        part = sums[last] - sums[first]
        more = part / inside - (sums[-1] - part) / outside
        noise = spread * math.sqrt(1 / inside + 1 / outside)
        return inside * outside * more**2 if more > max(math.log(_LONGER), _SURE * noise) else 0.0

    def best(pairs: Iterator[tuple[int, int]]) -> tuple[int, int]:
        return max(pairs, key=lambda pair: gain(*pair))

    edges = [size * k // _BINS for k in range(_BINS + 1)]
    most = _BINS * 2 // 3  # longer than that, the rest would be a quick spell; but a slowdown may come early
    first, last = best(
        (edges[a], edges[b])
        for a in range(_BINS)
        for b in range(a + 1, _BINS + 1)
        if b - a <= most or (a and b == _BINS)
    )
    if not gain(first, last):
        return None
    cell = -(-size // _BINS)
    first, last = best((place, last) for place in range(max(0, first - cell), min(first + cell, last)))
    if last < size:
        first, last = best((first, place) for place in range(max(first + 1, last - cell), min(last + cell, size) + 1))
    return first, last
