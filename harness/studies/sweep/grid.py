"""The grid of a sweep: what ``--vary`` says, the settings and seeds that are played, and what was
measured at each."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import yaml

from ...core.figures import RunFigures, figures_of
from ...errors import BadOption
from ...lab.runs.runner import run_one
from ...lab.runs.tasks import Task
from ...lab.scenarios.reading import vary
from ...lab.scenarios.timetable import timetable_of

MOST_VALUES = 1000
"""Of one axis (chosen)."""
_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})")
_LIKE_A_RANGE = re.compile(r"\d\s*\.\.|\.\.\s*\d")
_MEANT = "PATH=VALUES, as in tools.rate_limit=4..64 or load.concurrency=32,64,128"


@dataclass(frozen=True, slots=True)
class Axis:
    """One value of the scenario, and the values that it takes."""

    path: str
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def range(self) -> str:
        """The values in a few words."""
        if are_numbers(self.values):
            return f"{label(self.values[0])} to {label(self.values[-1])}"
        return ", ".join(map(label, self.values))


def are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def read_axes(texts: Sequence[str]) -> list[Axis]:
    """Read the options; raise BadOption."""
    axes = [read_axis(text) for text in texts]
    if not axes:
        raise BadOption(f"nothing to sweep: give --vary {_MEANT}")
    paths = [axis.path for axis in axes]
    for path in paths:
        if paths.count(path) > 1:
            raise BadOption(
                f"--vary {path}: given twice; put all values into one option, separated by commas"
            )
    return axes


def read_axis(text: str) -> Axis:
    """Read one option: a path, and values or ranges separated by commas."""
    path, equals, given = text.partition("=")
    path = path.strip()
    if not equals or not re.fullmatch(r"\w+(\.[\w-]+)*", path):
        raise BadOption(f"--vary {text}: expected {_MEANT}")
    if path == "seed":
        raise BadOption(
            "--vary seed: every setting is played with several seeds already; use --seeds N"
        )
    if path in ("about", "promises"):
        raise BadOption(
            f"--vary {path}: it does not change what happens in a run; expected {_MEANT}"
        )
    try:
        listed = yaml.safe_load(f"[{given}]")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        why = str(getattr(error, "problem", None) or error)
        raise BadOption(
            f"--vary {text}: the values are not YAML ({why}); expected {_MEANT}"
        ) from None
    by_label: dict[str, Any] = {}
    for written in listed:
        for value in _expanded(written, text):
            by_label[label(value)] = value
    values = list(by_label.values())
    if not values:
        raise BadOption(f"--vary {text}: no values; expected {_MEANT}")
    if len(values) > MOST_VALUES:
        raise BadOption(
            f"--vary {text}: {len(values):,} values; at most {MOST_VALUES:,} are possible"
        )
    return Axis(path, tuple(sorted(values) if are_numbers(values) else values))


def label(value: Any) -> str:
    """The value as a table shows it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict | list):
        return str(
            yaml.safe_dump(value, default_flow_style=True, width=math.inf, sort_keys=False)
        ).strip()
    return str(value)


def _expanded(value: Any, text: str) -> list[Any]:
    found = _RANGE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        if isinstance(value, str) and _LIKE_A_RANGE.search(value):
            raise BadOption(f"--vary {text}: {value!r} is not a range; expected 4..64")
        return [value]
    first, last = found.groups()
    start = _number(first)
    end = _number(last)
    if not math.isfinite(start) or not math.isfinite(end):
        raise BadOption(f"--vary {text}: the numbers of a range are finite")
    if start > end:
        raise BadOption(
            f"--vary {text}: the range is empty, because {first} is above {last}; write "
            f"{last}..{first}"
        )
    if start <= 0:
        raise BadOption(
            f"--vary {text}: a range that grows by factors starts above 0; list the values instead"
        )
    numbers = _doubling(start, end)
    if isinstance(start, int) and isinstance(end, int):
        return list(dict.fromkeys(round(number) for number in numbers))
    return [float(f"{number:.4g}") for number in numbers]


def _number(text: str) -> int | float:
    return int(text) if re.fullmatch(r"-?\d{1,15}", text) else float(text)


def _doubling(start: float, end: float) -> list[float]:
    """The start doubled again and again, with the value halfway to each next one: 4, 6, 8, 12, 16,
    ..., and the end."""
    values: list[float] = []
    low = start
    while low < end and len(values) <= MOST_VALUES:
        values += [low, 1.5 * low]
        low *= 2
    return [*(value for value in values if value < end), end]


MOST_RUNS = 10_000
"""Runs of a sweep, at most: a typo must not start a week of work (chosen)."""
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
    ok_beside_outages: float
    """The share that ended ok of the calls that no outage struck: how many an outage strikes says
    nothing about a setting, since slow clients send fewer calls into it."""
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    """The promises that did not hold with every seed."""
    errors: tuple[str, ...] = ()

    @classmethod
    def of(cls, samples: Sequence[GridSample]) -> Measured:
        found = [sample.figures for sample in samples if not sample.error]
        names = ("throughput", "p50", "p95", "p99", "refused", "wasted", "attempts", "seconds")
        spreads = {
            name: SeedSpread.of([float(getattr(sample, name)) for sample in found])
            for name in names
        }
        outcomes = sum((Counter(sample.outcomes) for sample in found), Counter[str]())
        failures = sum((Counter(sample.failures) for sample in found), Counter[str]())
        told = outcomes.total() - sum(sample.lost_in_outages for sample in found)
        return cls(
            **spreads,
            ok_share=outcomes["ok"] / outcomes.total() if outcomes else 0.0,
            ok_beside_outages=outcomes["ok"] / told if told else 0.0,
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
    """All settings of a sweep. The first axis below ``tools`` is what is recommended; the others
    are conditions."""

    axes: tuple[Axis, ...]
    seeds: int

    def __post_init__(self) -> None:
        points = math.prod(len(axis.values) for axis in self.axes)
        if (runs := points * self.seeds) > MOST_RUNS:
            raise BadOption(
                f"{points:,} settings with {self.seeds} seeds each are {runs:,} runs; at "
                f"most {MOST_RUNS:,} are "
                "possible: give fewer values or fewer --seeds"
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
    def compares(self) -> bool:
        """True if nothing is to be recommended: which scenario or which server model is played is
        no setting."""
        return not self.chosen.path.startswith("tools.") and not are_numbers(self.chosen.values)

    def tasks(self, task: Task, scenarios: Mapping[str, Task] | None = None) -> Iterator[Task]:
        """Yield the runs: all seeds of the first setting, then of the next; ``scenarios`` are those
        that are varied."""
        for values in self.settings:
            changed = self.by_path(values)
            if (name := changed.pop(SCENARIO, None)) is not None and scenarios is not None:
                task = scenarios[name]
            varied = vary(task.scenario, changed)
            for number in range(self.seeds):
                yield replace(task, scenario=varied.changed(seed=varied.seed + number))

    def by_path(self, values: Values) -> dict[str, Any]:
        return dict(zip([axis.path for axis in self.axes], values, strict=True))

    def condition(self, values: Values) -> str:
        """The name of the condition that a setting belongs to; empty if only one axis is varied."""
        named = zip(self.axes, values, strict=True)
        return ", ".join(
            f"{axis.name} {label(value)}" for axis, value in named if axis is not self.chosen
        )


def plain(value: float) -> str:
    """A figure without needless digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def play_sample(task: Task) -> GridSample:
    """Play and judge one run, and keep its figures only."""
    result = run_one(task)
    broken = tuple(verdict.promise for verdict in result.verdicts if verdict.state == "broken")
    timetable = timetable_of(task.scenario)
    figures = figures_of(result.journal, pauses=timetable.pauses, outages=timetable.outages)
    return GridSample(figures, broken, result.error)
