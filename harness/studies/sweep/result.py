"""The result of a sweep: what was measured at each setting, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from sfusion.harness.lab.scenarios.parts import ObservedPart
from sfusion.harness.studies.sweep.grid import SCENARIO, Grid, Measured, SeedSpread, Values, label, plain
from sfusion.harness.studies.sweep.recommendation import Recommendation, recommend, recommend_for_all, within

FIGURES = ("throughput", "p50", "p95", "p99", "refused", "wasted", "seconds")
_COUNTS = ("refused", "wasted")
HEAD = ("calls/s", "p50", "p95", "p99", "refused", "wasted", "batch")


@dataclass(frozen=True)
class SweepResult:
    scenario: str
    about: str
    seed: int
    grid: Grid
    measured: Sequence[Measured]
    """What was measured at each of the grid's settings."""
    observed: ObservedPart | None = None
    """What the log showed that the scenario was learned from."""

    @property
    def settings(self) -> list[tuple[Values, Measured]]:
        return list(zip(self.grid.settings, self.measured, strict=True))

    @cached_property
    def curves(self) -> dict[str, list[Measured]]:
        return self.grid.curves(self.measured)

    @cached_property
    def recommendations(self) -> dict[str, Recommendation]:
        """The recommendation under each condition."""
        if self.grid.compares:
            return {}
        values = self.grid.chosen.values
        found = {name: recommend(values, curve) for name, curve in self.curves.items()}
        if self.observed is None or self.grid.chosen.path != "tools.rate_limit":
            return found
        least, most = self.observed.rate_limit
        return {name: within(one, least, most, self.observed.unknown) for name, one in found.items()}

    @cached_property
    def overall(self) -> tuple[Any, float] | None:
        """The value that is good under every condition, and the share that it loses at worst; None if none works."""
        if self.grid.compares or any(one.cannot_tell for one in self.recommendations.values()):
            return None
        return recommend_for_all(self.grid.chosen.values, self.curves)

    @property
    def headline(self) -> str:
        """The answer in one line."""
        path = self.grid.chosen.path
        if self.grid.compares:
            what = "scenarios" if path == SCENARIO else f"values of {path}"
            return f"{len(self.grid.settings)} {what} compared; vary a value below tools too for a recommendation"
        if any(one.cannot_tell for one in self.recommendations.values()):
            return f"{path}: cannot tell"
        if self.overall is None:
            return f"{path}: no value can be recommended"
        value, loss = self.overall
        if len(self.curves) == 1:
            return f"{path}: {label(value)}"
        most = f"loses at most {loss:.1%}" if loss > 0.001 else "the best throughput"
        conditions = "both conditions" if len(self.curves) == 2 else f"all {len(self.curves)} conditions"
        return f"{path}: {label(value)} ({most} under {conditions})"

    def advice(self) -> list[tuple[str, str, str]]:
        """Each condition, the value to set, and the reason with what other values lose."""
        said = []
        for name, one in self.recommendations.items():
            value = "cannot tell" if one.cannot_tell else "none" if one.value is None else label(one.value)
            knee = f"; the knee is at {label(one.knee)}" if one.knee is not None and one.knee != one.value else ""
            said.append((name, value, f"{one.sentence}{knee}"))
        return said

    def sentences(self) -> list[str]:
        return [": ".join(filter(None, parts)) for parts in self.advice()]

    def rows(self) -> list[list[str]]:
        """A row of texts for each setting: its values, and ``FIGURES`` with their spread over the seeds."""
        return [
            [*map(label, values), *(shown(getattr(one, name), name) for name in FIGURES)]
            for values, one in self.settings
        ]

    def narrow_rows(self) -> list[list[str]]:
        """The same for a terminal of 80 columns: medians without units, and the spread of the throughput in percent."""
        return [
            [*map(label, values), _with_percent(one.throughput), *(_short(one, name) for name in FIGURES[1:])]
            for values, one in self.settings
        ]

    def is_recommended(self, values: Values) -> bool:
        """Is this setting the recommended one of its condition?"""
        if self.grid.compares:
            return False
        chosen = values[self.grid.axes.index(self.grid.chosen)]
        one = self.recommendations[self.grid.condition(values)]
        return one.value is not None and label(chosen) == label(one.value)

    def as_dict(self) -> dict[str, Any]:
        paths = [axis.path for axis in self.grid.axes]
        return {
            "sweep": 1,
            "scenario": self.scenario,
            "seed": self.seed,
            "seeds": self.grid.seeds,
            "chosen": self.grid.chosen.path,
            "recommended": None if self.overall is None else {"value": self.overall[0], "loss": self.overall[1]},
            "conditions": {name: asdict(one) for name, one in self.recommendations.items()},
            "settings": [
                {"values": dict(zip(paths, values, strict=True)), **asdict(one)} for values, one in self.settings
            ],
        }


def shown(found: SeedSpread, figure: str) -> str:
    """A figure with its spread: ``79.6 (78.9 to 80.2)``."""
    form = _count if figure in _COUNTS else plain
    low, middle, high = form(found.low), form(found.median), form(found.high)
    unit = "" if figure == "throughput" or figure in _COUNTS else " s"
    return f"{middle}{unit} ({low} to {high})" if low != high else f"{middle}{unit}"


def _with_percent(found: SeedSpread) -> str:
    """A figure and how far its seeds lie from the median at most: ``79.6 ±1%``."""
    far = max(found.high - found.median, found.median - found.low)
    return f"{plain(found.median)} ±{far / found.median:.0%}" if far and found.median else plain(found.median)


def _short(one: Measured, figure: str) -> str:
    value = getattr(one, figure).median
    return _count(value) if figure in _COUNTS or value >= 10 else f"{value:.2g}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
