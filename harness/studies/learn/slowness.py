"""What made some answers slower than others."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.studies.learn.cores import CoresFit
from sfusion.harness.studies.learn.distributions import clipped

_NOTICED = 0.1
"""Seconds for each request from which on being slow matters as much as failing."""


@dataclass(frozen=True, slots=True)
class Slowness:
    """What made some answers slower than others, and how long each program would have taken without that."""

    kind: str
    """none, contention, queue, spawn, degradation, slow_spell or slowdown."""
    base: tuple[float, ...]
    """Seconds of each answered request without the slowness, in their order; spells leave requests out."""
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
    """Seconds that programs would have run alone which were stopped because they got too little of the cores."""

    @property
    def spread(self) -> float:
        """The standard deviation of the logarithms that is left."""
        return spread_of(self.left)

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
