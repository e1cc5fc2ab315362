"""When calls and requests failed, in a log and in the run of the scenario learned from it.

The totals of two runs can agree although an outage lies at another time in one of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from sfusion_tools.record import Call

from .attempts import ending_of, outcome_of

POINTS = 15.0
"""By how many percentage points the share that has failed by some time may differ (chosen: an
outage that is moved by its own length differs by 100); more where few failed."""
SHIFT = 0.05
"""The share of the log's time by which failures may come earlier or later (chosen)."""
FEWEST = 8
"""Failures from which on their times say something (chosen)."""
_BY_CHANCE = 1.6
"""Times the deviation: what the largest distance of two samples of one distribution exceeds in
one of a hundred cases (Kolmogorov and Smirnov) (chosen)."""
_MOST_POINTS = 99.0
"""However few failed, failures before and after an outage are not the same (chosen)."""


@dataclass(frozen=True, slots=True)
class Course:
    """The times of failures by their kind, in seconds since the first call."""

    lasted: float = 0.0
    """When the last call began."""
    failures: dict[str, list[float]] = field(default_factory=dict)
    """In rising order."""

    def until(self, kind: str, end: float) -> list[float]:
        """Return the failures of a kind up to a time."""
        times = self.failures.get(kind, [])
        return times[: bisect_right(times, end)]


def course_of(calls: Sequence[Call]) -> Course:
    """Collect the failures of calls, which come in the order in which they began.

    Nothing is known where a log has no times.
    """
    if not calls or not all(call.timed for call in calls):
        return Course()

    start = calls[0].began
    failures: dict[str, list[float]] = {}
    for call in calls:
        began = call.began - start
        outcome = outcome_of(call)
        if outcome not in (None, "ok"):
            failures.setdefault(f"{outcome}", []).append(began)
        for attempt in call.attempts:
            if ending_of(attempt) not in ("answered", "unknown"):
                failures.setdefault("failed requests", []).append(began + attempt.after)

    for times in failures.values():
        times.sort()
    return Course(calls[-1].began - start, failures)


@dataclass(frozen=True, slots=True)
class CourseDifference:
    """How differently the failures of one kind lie in time."""

    kind: str
    log_half: float
    """The time by which half of the log's failures had happened."""
    run_half: float | None
    """The same of the run; None if nothing failed there."""
    points: float
    bound: float

    @property
    def agrees(self) -> bool:
        return self.points <= self.bound


def compare_courses(log: Course, run: Course) -> list[CourseDifference]:
    """Compare what had failed by each time, for as long as both last."""
    end = min(log.lasted, run.lasted)
    found = []
    for kind in log.failures:
        ours = log.until(kind, end)
        theirs = run.until(kind, end)
        if len(ours) < FEWEST:
            continue
        if theirs:
            points = 100 * _distance(ours, theirs, SHIFT * log.lasted)
            by_chance = 100 * _BY_CHANCE * math.sqrt(1 / len(ours) + 1 / len(theirs))
            bound = min(max(POINTS, by_chance), _MOST_POINTS)
            half = median(theirs)
        else:
            points = 100.0
            bound = POINTS
            half = None
        found.append(
            CourseDifference(
                kind=kind, log_half=median(ours), run_half=half, points=points, bound=bound
            )
        )
    return found


def _distance(ours: Sequence[float], theirs: Sequence[float], shift: float) -> float:
    """Return the largest difference of the shares that have failed by some time.

    Either side may be earlier or later by ``shift``.
    """
    # A share rises at its own times, so it is furthest ahead of the other one there.
    ahead = max(_share_by(at, ours) - _share_by(at + shift, theirs) for at in ours)
    behind = max(_share_by(at, theirs) - _share_by(at + shift, ours) for at in theirs)
    return max(0.0, ahead, behind)


def _share_by(time: float, times: Sequence[float]) -> float:
    """Return the share of these times that are not later than a time."""
    return bisect_right(times, time) / len(times)
