"""The figures of a log that a scenario learned from it has to reproduce."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.studies.learn.attempts import outcome_of, seconds_of
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
