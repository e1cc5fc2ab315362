"""The arithmetic of benchmarks: ratios with their spread, goals, and how a cost grows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of several measurements, and their range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def as_dict(self) -> dict[str, float]:
        return {"median": self.median, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound for the ratio to a baseline, or for the figure itself if ``baseline`` is empty."""

    baseline: str = ""
    at_least: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        return (
            f"at least {self.at_least:g}"
            if self.at_least is not None
            else f"at most {self.at_most:g}"
        )

    def missed_by(self, found: float) -> float:
        """How far the figure is from the goal; 0 if the goal is met."""
        if self.at_least is not None:
            return max(0.0, self.at_least - found)
        assert self.at_most is not None
        return max(0.0, found - self.at_most)


@dataclass(frozen=True, slots=True)
class Judged:
    """A ratio (or a figure) next to its goal."""

    baseline: str
    found: Spread
    goal: Goal | None = None

    @property
    def met(self) -> bool | None:
        """Is the goal met? None if there is no goal."""
        return None if self.goal is None else self.goal.missed_by(self.found.median) == 0

    @property
    def verdict(self) -> str:
        if self.goal is None:
            return ""
        missed = self.goal.missed_by(self.found.median)
        return f"missed by {missed:.2g}" if missed else "met"

    def as_dict(self) -> dict[str, Any]:
        missed = None if self.goal is None else self.goal.missed_by(self.found.median)
        goal = (
            {}
            if self.goal is None
            else {"at_least": self.goal.at_least, "at_most": self.goal.at_most}
        )
        return {
            "baseline": self.baseline,
            **self.found.as_dict(),
            **goal,
            "met": self.met,
            "missed_by": missed,
        }


OURS = "sfusion"


@dataclass(frozen=True)
class BenchResult:
    """What the rounds of one benchmark measured."""

    name: str
    about: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    """The figure of each contestant in each round."""
    goals: Sequence[Goal] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    """Baselines that were not measured, with the reason."""

    @property
    def figures(self) -> dict[str, Spread]:
        return {name: Spread.of(found) for name, found in self.samples.items()}

    @property
    def judged(self) -> list[Judged]:
        """The ratio to each baseline, over pairs of one round, so that other load on the machine
        affects both."""
        goals = {goal.baseline: goal for goal in self.goals}
        ours = self.samples[OURS]
        found = [Judged("", Spread.of(ours), goals[""])] if "" in goals else []
        for name, theirs in self.samples.items():
            if name != OURS:
                ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
                found.append(Judged(name, Spread.of(ratios), goals.get(name)))
        return found

    @property
    def missed(self) -> list[Judged]:
        return [goal for goal in self.judged if goal.met is False]

    def as_dict(self) -> dict[str, Any]:
        return {
            "benchmark": self.name,
            "about": self.about,
            "unit": self.unit,
            "rounds": len(self.samples[OURS]),
            "figures": {
                name: {**found.as_dict(), "rounds": list(self.samples[name])}
                for name, found in self.figures.items()
            },
            "ratios": [goal.as_dict() for goal in self.judged],
            "not_measured": dict(self.missing),
        }


@dataclass(frozen=True, slots=True)
class GrowthPoint:
    """The cost of one unit at one size. ``cost`` is None if the point was not measured; ``note``
    then says why."""

    size: int
    cost: Spread | None = None
    repetitions: int = 0
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        cost = None if self.cost is None else self.cost.as_dict()
        return {"size": self.size, "cost": cost, "repetitions": self.repetitions, "note": self.note}


@dataclass(frozen=True)
class GrowthCurve:
    """How the cost of one unit changes with the size."""

    curve: str
    """What grows, such as ``callers``."""
    line: str
    """What is measured, if a curve has several lines."""
    size_name: str
    unit: str
    """Of the cost, such as ``µs of CPU per call``."""
    points: Sequence[GrowthPoint]
    per_unit: bool = True
    """Is ``cost`` that of one unit? Otherwise it is a level, such as memory."""

    @property
    def name(self) -> str:
        return f"{self.curve}, {self.line}" if self.line else self.curve

    @property
    def exponent(self) -> float | None:
        """The e of total cost = size ** e, by least squares: 1 is linear, 2 is quadratic. None
        without two points."""
        found = [
            (math.log(point.size), math.log(point.cost.median))
            for point in self.points
            if point.cost is not None and point.cost.median > 0
        ]
        if len({x for x, _ in found}) < 2:
            return None
        slope = statistics.linear_regression(*zip(*found, strict=True)).slope
        return slope + 1 if self.per_unit else slope

    def as_dict(self) -> dict[str, Any]:
        return {
            "curve": self.curve,
            "line": self.line,
            "size": self.size_name,
            "unit": self.unit,
            "exponent": self.exponent,
            "points": [point.as_dict() for point in self.points],
        }
