"""The figures of a log that a scenario learned from it has to reproduce, and when things happened in both."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from sfusion.harness.studies.learn.attempts import ending_of, outcome_of, seconds_of
from sfusion.harness.studies.learn.distributions import quantile
from sfusion_tools.record import Call

OUTCOME_POINTS = 5.0
"""How many percentage points the share of an outcome may differ; more where there are few calls."""
RELATIVE = 0.25
"""By which share durations, the rate and the number of attempts may differ; more below 64 calls."""
FEWEST = 20
"""Calls from which on a comparison says something."""
_UNAVOIDABLE = 0.01
"""Seconds of difference that do not count."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Outcomes, durations and rates of calls; 0 where a log does not know."""

    calls: int
    outcomes: dict[str, int]
    unfinished: int
    p50: float
    p95: float
    per_second: float
    attempts_per_call: float

    @property
    def is_enough(self) -> bool:
        return self.calls >= FEWEST

    def share(self, outcome: str) -> float:
        total = sum(self.outcomes.values())
        return self.outcomes.get(outcome, 0) / total if total else 0.0

    def points(self, outcome: str) -> float:
        """How many percentage points the share of an outcome may differ in another run: at least two deviations."""
        calls = max(self.calls, 1)
        share = min(max(self.share(outcome), 0.5 / calls), 1 - 0.5 / calls)
        return max(OUTCOME_POINTS, 200 * math.sqrt(share * (1 - share) / calls))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of the log and of the run of the learned scenario."""

    name: str
    log: str
    run: str
    difference: str
    bound: str
    agrees: bool


def figures_of(calls: Sequence[Call]) -> Figures:
    outcomes = Counter(one for one in map(outcome_of, calls) if one is not None)
    durations = sorted(one for one in map(seconds_of, calls) if one is not None)
    ends = sorted(call.began + (seconds_of(call) or 0.0) for call in calls)
    attempts = sum(len(call.attempts) for call in calls)
    return Figures(
        calls=len(calls),
        outcomes=dict(outcomes.most_common()),
        unfinished=len(calls) - sum(outcomes.values()),
        p50=quantile(durations, 0.5) if durations else 0.0,
        p95=quantile(durations, 0.95) if durations else 0.0,
        per_second=_rate(ends),
        attempts_per_call=attempts / len(calls) if calls else 0.0,
    )


def _rate(ends: Sequence[float]) -> float:
    """Calls that ended per second, without the first and the last tenth, where one slow call can double the time."""
    cut = len(ends) // 10
    span = ends[-1 - cut] - ends[cut] if ends else 0.0
    return (len(ends) - 1 - 2 * cut) / span if span > 0 else 0.0


def compare(log: Figures, run: Figures) -> list[Comparison]:
    """Compare what the log shows with what the learned scenario does, each within its bound."""
    rows: list[Comparison] = []
    for outcome in dict.fromkeys((*log.outcomes, *run.outcomes)):
        a, b, points = 100 * log.share(outcome), 100 * run.share(outcome), log.points(outcome)
        differ, bound = f"{b - a:+.1f} points", f"{points:.3g} points"
        rows.append(Comparison(outcome, f"{a:.1f}%", f"{b:.1f}%", differ, bound, abs(b - a) <= points))
    most = max(RELATIVE, 2 / math.sqrt(max(log.calls, 1)))
    if log.p95:
        rows.append(relative("p50 of a call", log.p50, run.p50, most, " s", _UNAVOIDABLE))
        rows.append(relative("p95 of a call", log.p95, run.p95, most, " s", _UNAVOIDABLE))
        rows.append(relative("calls per second", log.per_second, run.per_second, most))
    if log.attempts_per_call:
        rows.append(relative("attempts per call", log.attempts_per_call, run.attempts_per_call, most))
    return rows


def relative(name: str, log: float, run: float, bound: float, unit: str = "", slack: float = 0.0) -> Comparison:
    off = (run - log) / log if log else float(run != log)
    agrees = abs(off) <= bound or abs(run - log) <= slack
    return Comparison(name, f"{log:.3g}{unit}", f"{run:.3g}{unit}", f"{off:+.0%}", f"{bound:.0%}", agrees)


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
        self._ordered = sorted(weighted)
        self.times = [at for at, _ in self._ordered]
        self._sums = list(accumulate((weight for _, weight in self._ordered), initial=0.0))
        squares = sum(weight**2 for _, weight in self._ordered)
        self.size = self._sums[-1] ** 2 / squares if squares else 0.0
        """How many equal ones would say as much."""

    def until(self, end: float) -> Happenings:
        return Happenings([pair for pair in self._ordered if pair[0] <= end])

    def share(self, time: float) -> float:
        """What has happened by a time; there is something."""
        return self._sums[bisect_right(self.times, time)] / self._sums[-1]

    def half(self) -> float:
        return self.times[bisect_left(self._sums, self._sums[-1] / 2) - 1]


Course = dict[str, Happenings]
"""By what happens."""


def course_of(calls: Sequence[Call]) -> Course:
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
                found["failed requests"].append((at + one.after, 1.0))
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
