"""What made some answers slower than others."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, combinations
from typing import Any

from .attempts import SHORTEST, TimedAttempt
from .cores import CoresFit
from .distributions import added_delay, clipped, rounded

_LONG_WAIT = 0.1
"""Seconds for each request from which on being slow matters as much as failing (chosen)."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """What made some answers slower than others, and how long each program would have taken without
    that."""

    kind: str
    """none, contention, queue, spawn, degradation, slow_spell or slowdown."""
    base: tuple[float, ...]
    """Seconds of each answered request without the slowness, in their order; spells leave requests
    out."""
    kept: tuple[int, ...]
    """The places of the requests that ``base`` speaks about."""
    left: tuple[float, ...] = ()
    """The logarithm of each duration by what was to be expected."""
    model: dict[str, Any] = field(default_factory=dict)
    what: dict[str, Any] = field(default_factory=dict)
    between: tuple[float, float] | None = None
    """Without an end (infinite) for a slowdown."""
    longer: float = 0.0
    """Seconds by the median, for a slow spell or slowdown."""
    says: str = ""
    evidence: str = ""
    lost: float = 0.0
    """The share of the time of all answers that it cost."""
    cores: CoresFit | None = None
    """What the log says about cores that programs share."""
    longer_programs: tuple[float, ...] = ()
    """Seconds that programs would have run alone which were stopped because they got too little of
    the cores."""

    @property
    def spread(self) -> float:
        """The standard deviation of the logarithms that is left."""
        return spread_of(self.left)

    @property
    def weight(self) -> float:
        """How much it matters: the share of the time, and less where that is only a moment for each
        request."""
        if not self.base or self.lost >= 1:
            return self.lost
        each = statistics.fmean(self.base) * self.lost / (1 - self.lost)
        return self.lost * min(1.0, each / _LONG_WAIT)

    def expected(self, at: float, in_flight: float) -> float:
        """The median seconds of an answer at a time and load."""
        middle = statistics.median(self.base) if self.base else 0.0
        match self.kind:
            case "contention":
                return float(middle * max(1.0, in_flight / self.model["cores"]))
            case "queue":
                return float(middle * max(1.0, in_flight / self.model["workers"]))
            case "spawn":
                return float(middle + self.model["spawn_cost"] * in_flight)
            case "degradation":
                part = self.what["degrade"]
                return float(middle + part["end"] * min(1.0, at / part["over"]))
            case "slowdown" if self.between is not None and at >= self.between[0]:
                return middle + self.longer
        return middle


def spread_of(logs: Sequence[float]) -> float:
    """A standard deviation that a few outliers do not change."""
    return statistics.pstdev(clipped(sorted(logs))) if logs else 0.0


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
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


_FEWEST = 40
"""Answers from which on a trend is one (chosen)."""
_BINS = 24
"""Parts of the log whose medians show a trend (chosen)."""
_RISING = 0.7
"""The rank correlation of the medians with time from which on answers get slower (chosen)."""
_PARTS = 20
_ENDS = range(4, _PARTS + 1)
"""Twentieths of the log after which a growing delay may have stopped growing (chosen: before a
fifth of the log, too few answers show the growth)."""
_LEAST_GROWTH = 0.5
"""How much of its first duration an answer must have gained at the end (chosen)."""
_UP_TO_THE_END = 0.9
"""The share of the log from which on a delay that grew that long is taken to have gone on
(chosen)."""


def find_degradation(
    answered: Sequence[TimedAttempt], durations: list[float], timed_out: Sequence[TimedAttempt]
) -> Slowness | None:
    """Find an extra delay that grows with time, to some time or for as long as the log goes on."""
    # Where many requests timed out, those that were answered were the quick ones.
    first_lost = _from_when_lost(answered, timed_out)
    usable = [place for place, request in enumerate(answered) if request.began < first_lost]
    if len(usable) < _FEWEST:
        return None

    ends = max(request.began for request in answered)
    last = min(ends, first_lost)
    times, medians = _course(answered, durations, usable)
    correlation = rank_correlation(times, medians)
    if correlation < _RISING or last <= 0:
        return None
    growth = _growth(times, medians, last)
    if growth is None or growth.slope < _LEAST_GROWTH * growth.start:
        return None

    over = growth.over
    slope = growth.slope
    if timed_out and over >= _UP_TO_THE_END * last:  # it went on where no answer could show it
        longer = max(ends, max(request.began for request in timed_out))
        slope = slope * longer / over
        over = longer
    added = [slope * min(1.0, request.began / over) for request in answered]
    left = [
        math.log(duration / (growth.start + extra))
        for duration, extra in zip(durations, added, strict=True)
    ]
    return Slowness(
        kind="degradation",
        base=tuple(max(durations[place] - added[place], SHORTEST) for place in usable),
        kept=tuple(usable),
        left=tuple(left),
        what={"degrade": {"start": 0, "end": rounded(slope), "over": rounded(over)}},
        says=f"answers got slower by {rounded(slope):g} s within {rounded(over):g} s",
        evidence=(
            f"median answer {medians[0]:.3g} s at the beginning and {medians[-1]:.3g} s "
            f"{times[-1]:.4g} s later (in {len(medians)} parts of the log, correlation "
            f"{correlation:.2f})"
        ),
        lost=min(1.0, sum(added) / sum(durations)),
    )


def _course(
    answered: Sequence[TimedAttempt], durations: Sequence[float], usable: Sequence[int]
) -> tuple[list[float], list[float]]:
    """Return the mean time and the median duration of each part of the log."""
    size = len(usable)
    bins = [usable[size * k // _BINS : size * (k + 1) // _BINS] for k in range(_BINS)]
    full = [places for places in bins if places]
    times = [statistics.fmean(answered[place].began for place in places) for places in full]
    medians = [statistics.median(durations[place] for place in places) for places in full]
    return times, medians


@dataclass(frozen=True, slots=True)
class _Growth:
    """A delay that grows evenly until some time."""

    error: float
    over: float
    start: float
    slope: float


def _growth(times: Sequence[float], medians: Sequence[float], last: float) -> _Growth | None:
    """Return the growth that comes nearest to the medians; None if they do not grow."""
    best: _Growth | None = None
    for number in _ENDS:
        over = last * number / _PARTS
        grown = [min(1.0, at / over) for at in times]
        slope, start = _line(grown, medians)
        if slope <= 0 or start <= 0:
            continue
        error = sum(
            (start + slope * share - middle) ** 2
            for share, middle in zip(grown, medians, strict=True)
        )
        if best is None or error < best.error:
            best = _Growth(error, over, start, slope)
    return best


def _from_when_lost(answered: Sequence[TimedAttempt], timed_out: Sequence[TimedAttempt]) -> float:
    """The time from which on a third of the requests or more timed out."""
    flags = sorted(
        [(request.began, False) for request in answered]
        + [(request.began, True) for request in timed_out]
    )
    for place in range(len(flags) - 9):
        if flags[place][1] and sum(lost for _, lost in flags[place : place + 10]) > 3:
            return flags[place][0]
    return math.inf


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    try:
        return statistics.linear_regression(x, y)
    except statistics.StatisticsError:
        return 0.0, 0.0


_FEWEST_OF_A_SPELL = 8
"""Answers from which on a slow stretch is more than an accident (chosen)."""
_LONGER = 1.5
"""How many times as long as elsewhere answers of a slow stretch take (chosen)."""
_SURE = 5.0
"""Deviations that a spell differs from the rest, since the best of hundreds is taken (chosen)."""


def find_slow_spell(answered: Sequence[TimedAttempt], durations: list[float]) -> Slowness | None:
    """A stretch of time in which answers took longer than before and after, or from which on they
    did."""
    logs = [math.log(duration) for duration in durations]
    found = _stretch(logs)
    if found is None:
        return None
    first, last = found
    for_good = last == len(answered)
    kept = [place for place in range(len(answered)) if not first <= place < last]
    quick = [durations[place] for place in kept]
    usual = statistics.median(quick)
    slow = statistics.median(durations[first:last])
    began = answered[first].began
    # Where all callers wait for slow answers, the next request comes long after the last slow one.
    ended = math.inf if for_good else (answered[last - 1].began + answered[last].began) / 2
    if ended <= began:
        return None
    delay = added_delay(durations[first:last], quick)
    longer = slow - usual
    slow_answers = last - first
    when = f"since {began:.3g} s" if for_good else f"from {began:.3g} s to {ended:.3g} s"
    left = [
        log - math.log(slow if first <= place < last else usual) for place, log in enumerate(logs)
    ]
    return Slowness(
        kind="slowdown" if for_good else "slow_spell",
        base=tuple(quick),
        kept=tuple(kept),
        left=tuple(left),
        what={"delay": delay.yaml},
        between=(began, ended),
        longer=longer,
        says=f"answers took {rounded(longer):g} s longer {when}",
        evidence=(
            f"median answer {slow:.3g} s in that time ({slow_answers:,} answers), "
            f"{usual:.3g} s otherwise; the delay: {delay}"
        ),
        lost=longer * slow_answers / sum(durations),
    )


class _Stretches:
    """How clearly the answers of a stretch took longer than all others."""

    def __init__(self, logs: Sequence[float]) -> None:
        self.size = len(logs)
        self._spread = spread_of(logs)
        self._sums = list(accumulate(logs, initial=0.0))

    def gain(self, stretch: tuple[int, int]) -> float:
        """Return how much of the variance it explains; 0 if it is not slow, or too short to say."""
        first, last = stretch
        inside = last - first
        outside = self.size - inside
        if min(inside, outside) < _FEWEST_OF_A_SPELL:
            return 0.0
        part = self._sums[last] - self._sums[first]
        more = part / inside - (self._sums[-1] - part) / outside
        noise = self._spread * math.sqrt(1 / inside + 1 / outside)
        if more <= max(math.log(_LONGER), _SURE * noise):
            return 0.0
        return inside * outside * more**2


def _coarse_stretches(size: int) -> list[tuple[int, int]]:
    """Return the stretches that begin and end where a part of the log does.

    None is longer than two thirds of the log, or the rest would be a quick spell; but a slowdown,
    which lasts to the end, may come early.
    """
    edges = [size * part // _BINS for part in range(_BINS + 1)]
    found = []
    for first, last in combinations(range(_BINS + 1), 2):
        is_slowdown = first > 0 and last == _BINS
        if last - first <= _BINS * 2 // 3 or is_slowdown:
            found.append((edges[first], edges[last]))
    return found


def _stretch(logs: Sequence[float]) -> tuple[int, int] | None:
    """The places between which logarithms differ most from the others; first by parts, then
    exactly."""
    stretches = _Stretches(logs)
    size = stretches.size
    found = max(_coarse_stretches(size), key=stretches.gain)
    if not stretches.gain(found):
        return None

    first, last = found
    part = -(-size // _BINS)
    begins = range(max(0, first - part), min(first + part, last))
    first, last = max(((begin, last) for begin in begins), key=stretches.gain)
    if last == size:  # a slowdown goes on to the end
        return first, last
    ends = range(max(first + 1, last - part), min(last + part, size) + 1)
    return max(((first, end) for end in ends), key=stretches.gain)
