"""The grid of a sweep: which settings are played with which seeds, and what was measured at each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from sfusion.harness.errors import BadOption
from sfusion.harness.lab.figures import RunFigures, figures_of
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.reading import vary
from sfusion.harness.studies.sweep.axes import Axis, label

MOST_RUNS = 10_000
SCENARIO = "scenario"
"""The axis whose values are whole scenarios: files, or names of bundled ones."""

Values = tuple[Any, ...]
"""One value of each axis, in the order of the axes."""


@dataclass(frozen=True, slots=True)
class GridSample:
    """One run of a setting."""

    figures: RunFigures
    broken: tuple[str, ...] = ()
    """The promises that did not hold."""
    error: str = ""
    """Why it could not be run."""


@dataclass(frozen=True, slots=True)
class SeedSpread:
    """A figure over the seeds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> SeedSpread:
        return cls(median(values), min(values), max(values)) if values else cls(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Measured:
    """A setting over all its seeds."""

    throughput: SeedSpread
    p50: SeedSpread
    p95: SeedSpread
    p99: SeedSpread
    refused: SeedSpread
    wasted: SeedSpread
    attempts: SeedSpread
    seconds: SeedSpread
    ok_share: float
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    """The promises that did not hold with every seed."""
    errors: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples: Sequence[GridSample]) -> Measured:
        found = [sample.figures for sample in samples if not sample.error]
        names = ("throughput", "p50", "p95", "p99", "refused", "wasted", "attempts", "seconds")
        spreads = {name: SeedSpread.of([float(getattr(one, name)) for one in found]) for name in names}
        outcomes: Counter[str] = Counter()
        failures: Counter[str] = Counter()
        for one in found:
            outcomes.update(one.outcomes)
            failures.update(one.failures)
        return cls(
            **spreads,
            ok_share=outcomes["ok"] / outcomes.total() if outcomes else 0.0,
            outcomes=dict(sorted(outcomes.items())),
            failures=dict(sorted(failures.items())),
            broken=tuple(sorted({promise for sample in samples for promise in sample.broken})),
            errors=tuple(dict.fromkeys(sample.error for sample in samples if sample.error)),
        )

    @property
    def main_failure(self) -> str:
        """The most frequent outcome that is not ok."""
        bad = {outcome: count for outcome, count in self.outcomes.items() if outcome != "ok"}
        return max(bad, key=lambda outcome: bad[outcome], default="")


@dataclass(frozen=True)
class Grid:
    """All settings of a sweep. The first axis below ``tools`` is what is recommended; the others are conditions."""

    axes: tuple[Axis, ...]
    seeds: int

    def __post_init__(self) -> None:
        points = 1
        for axis in self.axes:
            points *= len(axis.values)
        if (runs := points * self.seeds) > MOST_RUNS:
            raise BadOption(
                f"{points:,} settings with {self.seeds} seeds each are {runs:,} runs; at most {MOST_RUNS:,} are "
                "possible: give fewer values (4..64*5 are 5 of them) or fewer --seeds"
            )

    @property
    def settings(self) -> list[Values]:
        return list(itertools.product(*(axis.values for axis in self.axes)))

    @property
    def runs(self) -> int:
        return len(self.settings) * self.seeds

    @property
    def chosen(self) -> Axis:
        """The axis whose value is recommended."""
        settings = [axis for axis in self.axes if axis.path != SCENARIO] or list(self.axes)
        return next((axis for axis in settings if axis.path.startswith("tools.")), settings[0])

    @property
    def conditions(self) -> list[Axis]:
        return [axis for axis in self.axes if axis is not self.chosen]

    @property
    def compares(self) -> bool:
        """True if nothing is to be recommended: which scenario is played is no setting."""
        return self.chosen.path == SCENARIO

    def tasks(self, task: Task, scenarios: Mapping[str, Task] | None = None) -> Iterator[Task]:
        """Yield the runs: all seeds of the first setting, then of the next; ``scenarios`` are those that are varied."""
        for values in self.settings:
            changed = dict(zip([axis.path for axis in self.axes], values, strict=True))
            if (name := changed.pop(SCENARIO, None)) is not None and scenarios is not None:
                task = scenarios[name]
            varied = vary(task.scenario, changed)
            for number in range(self.seeds):
                yield replace(task, scenario=varied.changed(seed=varied.seed + number))

    def curves(self, measured: Sequence[Measured]) -> dict[str, list[Measured]]:
        """Return what was measured at the settings, along the chosen axis, by the name of the condition."""
        found: dict[str, list[Measured]] = {}
        for values, one in zip(self.settings, measured, strict=True):
            found.setdefault(self.condition(values), []).append(one)
        return found

    def condition(self, values: Values) -> str:
        """The name of the condition that a setting belongs to; empty if only one axis is varied."""
        named = zip(self.axes, values, strict=True)
        return ", ".join(f"{axis.name} {label(value)}" for axis, value in named if axis is not self.chosen)


def plain(value: float) -> str:
    """A figure without needless digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def play_sample(task: Task) -> GridSample:
    """Play and judge one run, and keep its figures only."""
    result = run_one(task)
    broken = tuple(verdict.promise for verdict in result.verdicts if verdict.state == "broken")
    return GridSample(figures_of(result.journal), broken, result.error)
