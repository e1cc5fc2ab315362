"""A sweep of a scenario over values of ``rate_limit``, as the benchmarks of advice need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import Scenario
from sfusion.harness.studies.sweep.grid import Grid, GridSample, Measured, read_axis
from sfusion.harness.studies.sweep.result import SweepResult


def swept(
    scenario: Scenario,
    values: str,
    seeds: int,
    play: Callable[[Iterable[Task]], Iterable[GridSample]],
) -> SweepResult:
    """Return what ``sfusion sweep`` finds; ``values`` are written as its ``--vary``."""
    grid = Grid((read_axis(values),), seeds)
    samples = list(play(grid.tasks(Task(scenario, "sim"))))
    starts = range(0, len(samples), seeds)
    return SweepResult(
        scenario=scenario.title,
        about=scenario.about,
        seed=scenario.seed,
        grid=grid,
        measured=[Measured.of(samples[start : start + seeds]) for start in starts],
        observed=[scenario.observed] * len(starts),
    )
