"""Find the knee: the concurrency beyond which throughput stops improving. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ENOUGH = 0.85
"""Share of the best throughput that counts as reaching it: measurements of one second are no more precise."""
COLLAPSED = 0.7
"""Below this share of the best throughput, load makes the sandbox slower."""
TOLERATED = 0.02
"""Share of requests that may fail while a level still counts as working."""

Shape = Literal["plateau", "collapse", "throttled", "failing", "rising"]


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement at one level of concurrency."""

    concurrency: int
    throughput: float
    """Successful programs per second."""
    latency: float
    """Their median duration in seconds."""
    requests: int = 0
    throttled: int = 0
    """Answered 429 or 503."""
    failed: int = 0
    """Failed in any other way."""

    @property
    def works(self) -> bool:
        return self.throughput > 0 and self.throttled + self.failed <= TOLERATED * self.requests


@dataclass(frozen=True, slots=True)
class Knee:
    rate_limit: int
    """The recommended setting: the lowest concurrency that reaches nearly the best throughput."""
    throughput: float
    """The best throughput, in programs per second."""
    shape: Shape
    """What happens above the knee: no gain, a loss, refusals, failures; ``rising`` if the end was not reached."""


def find_knee(points: Sequence[Point]) -> Knee | None:
    """Return the knee, or None if not even the lowest level worked."""
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
    # Levels double, so the true value lies somewhere above the previous level. Little's law says where: the number
    # in flight is throughput times the duration of one call, which is the previous level's as long as nothing queues.
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
    """Did the last level gain at least half of what unlimited scaling would have gained?"""
    if len(levels) < 2:
        return True
    before, last = levels[-2:]
    return last.throughput / before.throughput - 1 >= (last.concurrency / before.concurrency - 1) / 2
