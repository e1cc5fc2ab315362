"""Why did programs take longer at one time than at another: contention, a queue, or a server that got slower?"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from sfusion.harness.learning.attempts import LoggedRequest
from sfusion.harness.learning.distributions import quantile, rounded
from sfusion.harness.learning.in_flight import InFlight

_FEWEST = 40
_BINS = 24
_GAIN = 0.93
"""A cause is named if it leaves at most this share of the spread of the durations."""
_NOTICED = 0.1
"""Seconds for each request from which on being slow matters as much as failing."""
_SURE = 5.0
"""Deviations that a spell differs from the rest, since the best of hundreds is taken."""
_SHORTEST = 1e-4


@dataclass(frozen=True, slots=True)
class Slowness:
    """What made some answers slower than others, and how long each program would have taken without that."""

    kind: str
    """none, contention, queue, degradation or slow_spell."""
    base: tuple[float, ...]
    """Seconds of each answered request without the slowness, in their order; empty spells leave requests out."""
    kept: tuple[int, ...]
    """The places of the requests that ``base`` speaks about."""
    spread: float = 0.0
    """The standard deviation of the logarithms that is left."""
    model: dict[str, Any] = field(default_factory=dict)
    what: dict[str, Any] = field(default_factory=dict)
    between: tuple[float, float] | None = None
    says: str = ""
    evidence: str = ""
    lost: float = 0.0
    """The share of the time of all answers that it cost."""

    @property
    def weight(self) -> float:
        """How much it matters: the share of the time, and less where that is only a moment for each request."""
        if not self.base or self.lost >= 1:
            return self.lost
        each = statistics.fmean(self.base) * self.lost / (1 - self.lost)
        return self.lost * min(1.0, each / _NOTICED)

    def expected(self, at: float, in_flight: float) -> float:
        """The median seconds of an answer at a time and load."""
        middle = statistics.median(self.base) if self.base else 0.0
        match self.kind:
            case "contention":
                return float(middle * max(1.0, in_flight / self.model["cores"]))
            case "degradation":
                part = self.what["degrade"]
                return float(middle + part["end"] * min(1.0, at / part["over"]))
        return middle


def find_slowness(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], timed_out: Sequence[LoggedRequest]
) -> Slowness:
    """Compare the explanations by the spread of durations that each leaves, and return the best one."""
    places = tuple(range(len(answered)))
    durations = [max(one.seconds, _SHORTEST) for one in answered]
    spread = _spread([math.log(one) for one in durations]) if durations else 0.0
    plain = Slowness("none", tuple(durations), places, spread)
    if len(answered) < _FEWEST or spread < 0.02:
        return plain
    queue = _queue(answered, durations)
    if queue is not None:
        return queue
    candidates = [
        _contention(answered, everything, durations),
        _degradation(answered, durations, timed_out),
        _slow_spell(answered, durations),
    ]
    best = plain
    for one, margin in zip(candidates, (_GAIN, _GAIN, 0.9), strict=True):
        if one is not None and one.spread < margin * best.spread:
            best = one
    return best


def _spread(logs: Sequence[float]) -> float:
    """A standard deviation that a few outliers do not change."""
    ordered = sorted(logs)
    low, high = quantile(ordered, 0.025), quantile(ordered, 0.975)
    return statistics.pstdev([min(high, max(low, one)) for one in ordered])


def _queue(answered: Sequence[LoggedRequest], durations: list[float]) -> Slowness | None:
    """Requests that waited in the server before their program ran."""
    run = [one.record.run_seconds for one in answered]
    known = [one for one in run if one is not None]
    if len(known) < len(run):
        return None
    waits = [max(0.0, whole - ran) for whole, ran in zip(durations, known, strict=True)]
    if sum(waits) < 0.2 * sum(durations):
        return None
    running = InFlight((one.ended - ran, one.ended) for one, ran in zip(answered, known, strict=True))
    inside = InFlight((one.began, one.ended) for one in answered)
    places = running.lasting_peak
    if not places or places > 0.8 * inside.peak:
        return None
    # While anybody waits, all the places are taken; else the sandbox counts something else than time.
    waiting = [(one.began, one.ended - ran) for one, ran in zip(answered, known, strict=True)]
    taken = [running.mean(began, ended) for began, ended in waiting if ended - began > 0.01]
    if not taken or statistics.fmean(taken) < 0.85 * places:
        return None
    full = sum(inside.at(one.began) >= places for one, wait in zip(answered, waits, strict=True) if wait > 0.01)
    waited = sum(wait > 0.01 for wait in waits)
    return Slowness(
        "queue",
        tuple(max(one, _SHORTEST) for one in known),
        tuple(range(len(answered))),
        model={"kind": "queue", "workers": places},
        says=f"{places} programs run at a time, the others wait in the server",
        evidence=f"{full:,} of {waited:,} requests that waited there came with {places} or more in flight",
        lost=sum(waits) / sum(durations),
    )


def _contention(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], durations: list[float]
) -> Slowness | None:
    busy = InFlight((one.began, one.ended) for one in everything)
    loads = [max(1.0, busy.mean(one.began, one.ended)) for one in answered]
    if busy.peak < 2 or _correlation(loads, durations) < max(0.15, 3 / math.sqrt(len(durations))):
        return None
    best: tuple[float, float, list[float]] | None = None
    steps = 8 * busy.peak.bit_length()
    for number in range(steps + 1):
        cores = busy.peak ** (number / steps)

        def speed(count: int, cores: float = cores) -> float:
            return min(1.0, cores / count) if count > 0 else 1.0

        given = busy.integral(speed)
        work = [max(busy.between(given, speed, one.began, one.ended), _SHORTEST) for one in answered]
        left = statistics.pstdev([math.log(one) for one in work])
        if best is None or left < best[1]:
            best = cores, left, work
    assert best is not None
    cores, _, work = best
    left = _spread([math.log(one) for one in work])
    few = [d for d, load in zip(durations, loads, strict=True) if load <= cores]
    many = [d for d, load in zip(durations, loads, strict=True) if load > cores]
    if not many or cores > 0.9 * busy.peak:
        return None
    alone = f"{statistics.median(few):.3g} s" if few else "unknown"
    return Slowness(
        "contention",
        tuple(work),
        tuple(range(len(work))),
        left,
        model={"cores": rounded(cores)},
        says=f"programs share about {rounded(cores):g} cores: beyond that many in flight each one gets slower",
        evidence=f"median answer {alone} with up to {cores:.3g} in flight, {statistics.median(many):.3g} s with more; "
        f"spread of the durations {_spread([math.log(d) for d in durations]):.2f} before, {left:.2f} after correction",
        lost=1 - sum(work) / sum(durations),
    )


def _degradation(
    answered: Sequence[LoggedRequest], durations: list[float], timed_out: Sequence[LoggedRequest]
) -> Slowness | None:
    """An extra delay that grows with time, up to some time or for as long as the log goes on."""
    # Where many requests timed out, those that were answered were the quick ones.
    first_lost = _from_when_lost(answered, timed_out)
    usable = [place for place, one in enumerate(answered) if one.began < first_lost]
    if len(usable) < _FEWEST:
        return None
    ends = max(one.began for one in answered)
    last = min(ends, first_lost)
    bins = [usable[len(usable) * k // _BINS : len(usable) * (k + 1) // _BINS] for k in range(_BINS)]
    times = [statistics.fmean(answered[place].began for place in one) for one in bins if one]
    medians = [statistics.median(durations[place] for place in one) for one in bins if one]
    if _correlation(times, medians) < 0.7 or last <= 0:
        return None
    best: tuple[float, float, float, float] | None = None
    for number in range(4, 21):
        over = last * number / 20
        growth = [min(1.0, at / over) for at in times]
        slope, start = _line(growth, medians)
        if slope <= 0 or start <= 0:
            continue
        error = sum((start + slope * g - m) ** 2 for g, m in zip(growth, medians, strict=True))
        if best is None or error < best[0]:
            best = error, over, start, slope
    if best is None or best[3] < 0.5 * best[2]:
        return None
    _, over, start, slope = best
    if timed_out and over >= 0.9 * last:  # it went on where no answer could show it
        longer = max(ends, max(one.began for one in timed_out))
        slope, over = slope * longer / over, longer
    added = [slope * min(1.0, one.began / over) for one in answered]
    logs = [math.log(d / (start + extra)) for d, extra in zip(durations, added, strict=True)]
    base = [max(durations[place] - added[place], _SHORTEST) for place in usable]
    return Slowness(
        "degradation",
        tuple(base),
        tuple(usable),
        _spread(logs),
        what={"degrade": {"start": 0, "end": rounded(slope), "over": rounded(over)}},
        says=f"answers got slower by {rounded(slope):g} s within {rounded(over):g} s",
        evidence=f"median answer {medians[0]:.3g} s at the beginning and {medians[-1]:.3g} s "
        f"{times[-1]:.4g} s later (in {len(medians)} parts of the log, correlation {_correlation(times, medians):.2f})",
        lost=min(1.0, sum(added) / sum(durations)),
    )


def _from_when_lost(answered: Sequence[LoggedRequest], timed_out: Sequence[LoggedRequest]) -> float:
    """The time from which on a third of the requests or more timed out."""
    flags = sorted([(one.began, False) for one in answered] + [(one.began, True) for one in timed_out])
    for place in range(len(flags) - 9):
        if flags[place][1] and sum(lost for _, lost in flags[place : place + 10]) > 3:
            return flags[place][0]
    return math.inf


def _slow_spell(answered: Sequence[LoggedRequest], durations: list[float]) -> Slowness | None:
    """A stretch of time in which answers took longer than before and after."""
    edges = [len(answered) * k // _BINS for k in range(_BINS + 1)]
    logs = [math.log(one) for one in durations]
    spread, sums = _spread(logs), list(accumulate(logs, initial=0.0))
    best: tuple[float, int, int] | None = None
    for first in range(_BINS):
        for last in range(first + 1, min(_BINS, first + _BINS * 2 // 3) + 1):
            inside = edges[last] - edges[first]
            outside = len(logs) - inside
            if inside < 8 or outside < 8:
                continue
            part = sums[edges[last]] - sums[edges[first]]
            a, b = part / inside, (sums[-1] - part) / outside
            gain = inside * outside * (a - b) ** 2
            noise = spread * math.sqrt(1 / inside + 1 / outside)
            if a > b + max(math.log(1.5), _SURE * noise) and (best is None or gain > best[0]):
                best = gain, edges[first], edges[last]
    if best is None:
        return None
    _, first, last = best
    kept = [place for place in range(len(answered)) if not first <= place < last]
    usual = statistics.median(durations[place] for place in kept)
    slow = statistics.median(durations[first:last])
    began = answered[first].began
    ended = answered[last].began if last < len(answered) else answered[-1].began + 1e-3
    left = [logs[place] - math.log(slow if first <= place < last else usual) for place in range(len(logs))]
    if ended <= began:
        return None
    return Slowness(
        "slow_spell",
        tuple(durations[place] for place in kept),
        tuple(kept),
        _spread(left),
        what={"delay": rounded(slow - usual)},
        between=(began, ended),
        says=f"answers took {rounded(slow - usual):g} s longer from {began:.3g} s to {ended:.3g} s",
        evidence=f"median answer {slow:.3g} s in that time ({last - first:,} answers), {usual:.3g} s otherwise",
        lost=(slow - usual) * (last - first) / sum(durations),
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    try:
        return statistics.linear_regression(x, y)
    except statistics.StatisticsError:
        return 0.0, 0.0


def _correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's: of the ranks."""
    try:
        return statistics.correlation(_ranks(x), _ranks(y))
    except statistics.StatisticsError:
        return 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last < len(order) and values[order[last]] == values[order[first]]:
            last += 1
        for place in order[first:last]:
            ranks[place] = (first + last - 1) / 2
        first = last
    return ranks
