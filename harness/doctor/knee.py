"""The knee: from how many calls in flight on a sandbox does no more work for having more. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ENOUGH = 0.85
"""This share of the best throughput counts as having reached it: measurements of a second are not better."""
COLLAPSED = 0.7
"""Below this share of the best throughput, more load makes it slower."""
TOLERATED = 0.02
"""Share of requests that may fail at a level that still counts as working."""

Shape = Literal["plateau", "collapse", "throttled", "failing", "rising"]


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one level."""

    concurrency: int
    throughput: float
    """Programs that ended well, per second."""
    latency: float
    """Median seconds of those."""
    requests: int = 0
    throttled: int = 0
    """Answered 429 or 503."""
    failed: int = 0
    """Ended badly otherwise."""

    @property
    def works(self) -> bool:
        """Did practically all end well?"""
        return self.throughput > 0 and self.throttled + self.failed <= TOLERATED * self.requests


@dataclass(frozen=True, slots=True)
class Knee:
    """Where more calls in flight stop to help."""

    rate_limit: int
    """What to set: the fewest calls in flight that get practically all there is to get."""
    throughput: float
    """Programs per second there is to get."""
    shape: Shape
    """What happens beyond: no gain, a loss, refusals, failures; or ``rising``, when the end was not seen."""


def find_knee(points: Sequence[Point]) -> Knee | None:
    """The knee of what was measured; None when not even the lowest level worked."""
    levels = sorted(points, key=lambda point: point.concurrency)
    working: list[Point] = []
    for point in levels:
        if not point.works:
            break
        working.append(point)
    if not working:
        return None
    best = max(point.throughput for point in working)
    place = next(place for place, point in enumerate(working) if point.throughput >= ENOUGH * best)
    knee = working[place]
    shape = _shape(levels, working, knee, best)
    if shape == "rising" or place == 0:
        return Knee(knee.concurrency, best, shape)
    # Levels double, so the true figure lies somewhere above the level before. Little's law tells where: what is in
    # flight is throughput times the time of one call, which is that of the level before as long as nothing queues.
    before = working[place - 1]
    needed = math.ceil(round(best * before.latency, 3))
    return Knee(min(knee.concurrency, max(before.concurrency + 1, needed)), best, shape)


def _shape(levels: list[Point], working: list[Point], knee: Point, best: float) -> Shape:
    if len(working) < len(levels):
        beyond = levels[len(working)]
        return "throttled" if beyond.throttled >= beyond.failed else "failing"
    if levels[-1].throughput < COLLAPSED * best:
        return "collapse"
    return "rising" if knee is levels[-1] and _still_rises(levels) else "plateau"


def _still_rises(levels: list[Point]) -> bool:
    """Did the last level bring at least half of what it would have without any bound?"""
    if len(levels) < 2:
        return True
    before, last = levels[-2:]
    return last.throughput / before.throughput - 1 >= (last.concurrency / before.concurrency - 1) / 2
