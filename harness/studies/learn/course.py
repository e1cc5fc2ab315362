"""When things happened, in a log and in a run of the scenario learned from it: do both take the same course?"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate

from sfusion.harness.studies.learn.attempts import ending_of, outcome_of, seconds_of
from sfusion.harness.studies.learn.figures import Comparison
from sfusion.harness.studies.look.record import LoggedCall

COURSE_POINTS = 15.0
"""By how many percentage points the share that has happened by some time may differ; more where there is little."""
COURSE_SHIFT = 0.05
"""The share of the log's time by which things may happen earlier or later."""
_FEWEST = 8
_BY_CHANCE = 1.6
"""Times the deviation: what the largest distance of two samples exceeds in one of a hundred cases."""


class Happenings:
    """Times since the first call, each with how much it counts."""

    def __init__(self, weighted: Sequence[tuple[float, float]]) -> None:
        ordered = sorted(weighted)
        self.times = [at for at, _ in ordered]
        self._sums = list(accumulate((weight for _, weight in ordered), initial=0.0))
        squares = sum(weight**2 for _, weight in ordered)
        self.size = self._sums[-1] ** 2 / squares if squares else 0.0
        """How many equal ones would say as much."""

    def until(self, end: float) -> Happenings:
        return Happenings([pair for pair in self._pairs() if pair[0] <= end])

    def _pairs(self) -> list[tuple[float, float]]:
        return [(at, self._sums[place + 1] - self._sums[place]) for place, at in enumerate(self.times)]

    def share(self, time: float) -> float:
        """What has happened by a time; there is something."""
        return self._sums[bisect_right(self.times, time)] / self._sums[-1]

    def half(self) -> float:
        return self.times[bisect_left(self._sums, self._sums[-1] / 2) - 1]


Course = dict[str, Happenings]
"""By what happens."""


def course_of(calls: Sequence[LoggedCall]) -> Course:
    """``calls`` are in the order in which they began; nothing is known where a log has no times."""
    if not calls or not all(call.timed for call in calls):
        return {}
    start = calls[0].began
    found: dict[str, list[tuple[float, float]]] = {"calls": [], "seconds of calls": [], "failed requests": []}
    for call in calls:
        at = call.began - start
        found["calls"].append((at, 1.0))
        if took := seconds_of(call):
            found["seconds of calls"].append((at, took))
        outcome = outcome_of(call)
        if outcome is not None and outcome != "ok":
            found.setdefault(outcome, []).append((at, 1.0))
        for one in call.attempts:
            if ending_of(one) not in ("answered", "unknown"):
                found["failed requests"].append((one.began - start, 1.0))
    return {name: Happenings(one) for name, one in found.items() if one}


def compare_courses(log: Course, run: Course) -> list[Comparison]:
    """Compare what had happened by each time, as long as both last."""
    if not log or not run:
        return []
    lasted, end = log["calls"].times[-1], min(log["calls"].times[-1], run["calls"].times[-1])
    rows: list[Comparison] = []
    for name, whole in log.items():
        ours, theirs = whole.until(end), run.get(name, Happenings(())).until(end)
        if ours.size < _FEWEST:
            continue
        points, bound = 100.0, COURSE_POINTS
        if theirs.size:
            points = 100 * _distance(ours, theirs, COURSE_SHIFT * lasted)
            bound = max(bound, 100 * _BY_CHANCE * math.sqrt(1 / ours.size + 1 / theirs.size))
        rows.append(
            Comparison(
                f"course of {name}",
                f"half by {ours.half():.3g} s",
                f"half by {theirs.half():.3g} s" if theirs.size else "none",
                f"{points:.1f} points",
                f"{min(bound, 99.0):.0f} points",
                points <= min(bound, 99.0),
            )
        )
    return rows


def _distance(one: Happenings, other: Happenings, shift: float) -> float:
    """The largest difference of what had happened by some time, if that may be earlier or later by ``shift``."""
    # A share rises at its own times, so it is furthest ahead of the other one there.
    ahead = max(one.share(at) - other.share(at + shift) for at in one.times)
    behind = max(other.share(at) - one.share(at + shift) for at in other.times)
    return max(0.0, ahead, behind)
