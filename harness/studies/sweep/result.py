"""The result of a sweep: what was measured at each setting, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import compress
from typing import Any

from ...lab.scenarios.parts import ObservedPart
from ..learn.permits import in_each
from .grid import SCENARIO, Grid, Measured, SeedSpread, Values, are_numbers, label, plain
from .reach import RATE_LIMIT, beyond, known_limits, tells_about, within
from .recommendation import Recommendation, recommend, recommend_for_all

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
    observed: Sequence[ObservedPart | None] = ()
    """What the log showed, or a measurement, from which the scenario of each of the settings was
    made; empty if none was made so."""

    @property
    def settings(self) -> list[tuple[Values, Measured]]:
        return list(zip(self.grid.settings, self.measured, strict=True))

    @cached_property
    def curves(self) -> dict[str, list[Measured]]:
        """What was measured along the chosen axis, by the name of the condition."""
        found: dict[str, list[Measured]] = {}
        for values, measured in self.settings:
            found.setdefault(self.grid.condition(values), []).append(measured)
        return found

    @cached_property
    def recommendations(self) -> dict[str, Recommendation]:
        """The recommendation under each condition."""
        if self.grid.compares:
            return {}
        return {
            name: self._within_reach(name, recommend(self.grid.chosen.values, curve))
            for name, curve in self.curves.items()
        }

    def _within_reach(self, condition: str, recommendation: Recommendation) -> Recommendation:
        settings = [
            values for values in self.grid.settings if self.grid.condition(values) == condition
        ]
        observed = self._observed.get(settings[0])
        if observed is None:
            return recommendation
        if self.grid.chosen.path == RATE_LIMIT:
            known = known_limits(observed, self.grid.by_path(settings[0]))
            return within(recommendation, known, observed, self.grid.chosen.values)
        if not any(map(self._is_known, settings)):
            return beyond(recommendation, observed.unknown)
        return recommendation

    @cached_property
    def _observed(self) -> dict[Values, ObservedPart | None]:
        if not self.observed:
            return {}
        return dict(zip(self.grid.settings, self.observed, strict=True))

    def _is_known(self, values: Values) -> bool:
        return tells_about(self._observed.get(values), self.grid.by_path(values))

    @cached_property
    def overall(self) -> tuple[Any, float] | None:
        """The value that is good under every condition, and the share that it loses at worst;
        None if none works."""
        if self.grid.compares or self._cannot_tell:
            return None
        if len(self.recommendations) == 1:
            (only,) = self.recommendations.values()
            return None if only.value is None else (only.value, only.loss)
        known = self._known_everywhere
        curves = {name: list(compress(curve, known)) for name, curve in self.curves.items()}
        return recommend_for_all(list(compress(self.grid.chosen.values, known)), curves)

    @cached_property
    def _known_everywhere(self) -> list[bool]:
        """Of each value of the chosen axis: is it known under every condition?"""
        place = self.grid.axes.index(self.grid.chosen)
        unknown = {
            label(values[place]) for values in self.grid.settings if not self._is_known(values)
        }
        return [label(value) not in unknown for value in self.grid.chosen.values]

    @property
    def headline(self) -> str:
        """The answer in one line."""
        path = self.grid.chosen.path
        if self.grid.compares:
            what = "scenarios" if path == SCENARIO else f"values of {path}"
            return (
                f"{len(self.grid.settings)} {what} compared; vary a value below tools "
                "too for a recommendation"
            )
        if self._cannot_tell:
            why = "" if any(self._known_everywhere) else ": no value is known under all conditions"
            return f"{path}: cannot tell{why if len(self.curves) > 1 else ''}"
        if self.overall is None:
            return f"{path}: no value can be recommended"
        value, loss = self.overall
        of_each = self._of_each(value)
        if len(self.curves) == 1:
            return f"{path}: {label(value)}" + (f" ({of_each})" if of_each else "")
        most = f"loses at most {loss:.1%}" if loss > 0.001 else "the best throughput"
        conditions = (
            "both conditions" if len(self.curves) == 2 else f"all {len(self.curves)} conditions"
        )
        said = "; ".join(filter(None, (of_each, f"{most} under {conditions}")))
        return f"{path}: {label(value)} ({said})"

    @property
    def processes(self) -> int:
        """How many processes of the client have limiters of their own; 1 if they share one."""
        return max((part.processes for part in self.observed if part is not None), default=1)

    def _of_each(self, value: Any) -> str:
        """Say what to set in each process, where a limit is the total of several; else nothing.

        It is rounded down, unless the log tells only about more than that in all.
        """
        processes = self.processes
        if processes == 1 or self.grid.chosen.path != RATE_LIMIT or not are_numbers([value]):
            return ""
        known = [part.rate_limit[0] for part in self.observed if part is not None]
        each = max(1, value // processes)
        if each * processes < max(known):
            each += 1
        said = in_each(each, processes)
        return said if each * processes == value else f"{said}, {each * processes} in all"

    def advice(self) -> list[tuple[str, str, str]]:
        """Each condition, the value to set, and the reason with what other values lose."""
        said = []
        for name, recommendation in self.recommendations.items():
            sentence = recommendation.sentence
            if recommendation.knee not in (None, recommendation.value):
                sentence += f"; the knee is at {label(recommendation.knee)}"
            said.append((name, _value_of(recommendation), sentence))
        return said

    def sentences(self) -> list[str]:
        return [": ".join(filter(None, parts)) for parts in self.advice()]

    def rows(self) -> list[list[str]]:
        """A row of texts for each setting: its values, and ``FIGURES`` with their spread over
        the seeds."""
        return [
            [*map(label, values), *(shown(getattr(measured, name), name) for name in FIGURES)]
            for values, measured in self.settings
        ]

    def narrow_rows(self) -> list[list[str]]:
        """The same for a terminal of 80 columns: medians without units, and the spread of the
        throughput in percent."""
        return [
            [
                *map(label, values),
                _with_percent(measured.throughput),
                *(_short(measured, name) for name in FIGURES[1:]),
            ]
            for values, measured in self.settings
        ]

    def is_trusted(self, values: Values) -> bool:
        """Does the log or the measurement tell about this setting? Always, where it tells what to
        recommend."""
        return not self._cannot_tell or self._is_known(values)

    @property
    def _cannot_tell(self) -> bool:
        found = self.recommendations.values()
        if any(recommendation.cannot_tell for recommendation in found):
            return True
        return len(found) > 1 and not any(self._known_everywhere)

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
            "processes": self.processes,
            "recommended": None
            if self.overall is None
            else {"value": self.overall[0], "loss": self.overall[1]},
            "conditions": {
                name: asdict(recommendation)
                for name, recommendation in self.recommendations.items()
            },
            "settings": [
                {
                    "values": dict(zip(paths, values, strict=True)),
                    "trusted": self.is_trusted(values),
                    **asdict(measured),
                }
                for values, measured in self.settings
            ],
        }


def _value_of(recommendation: Recommendation) -> str:
    """Return the recommended value as it is shown."""
    if recommendation.cannot_tell:
        return "cannot tell"
    if recommendation.value is None:
        return "none"
    return label(recommendation.value)


def shown(found: SeedSpread, figure: str) -> str:
    """A figure with its spread: ``79.6 (78.9 to 80.2)``."""
    form = _count if figure in _COUNTS else plain
    low = form(found.low)
    middle = form(found.median)
    high = form(found.high)
    unit = "" if figure == "throughput" or figure in _COUNTS else " s"
    return f"{middle}{unit} ({low} to {high})" if low != high else f"{middle}{unit}"


def _with_percent(found: SeedSpread) -> str:
    """A figure and how far its seeds lie from the median at most: ``79.6 ±1%``."""
    far = max(found.high - found.median, found.median - found.low)
    if far and found.median:
        return f"{plain(found.median)} ±{far / found.median:.0%}"
    return plain(found.median)


def _short(measured: Measured, figure: str) -> str:
    value = getattr(measured, figure).median
    return _count(value) if figure in _COUNTS or value >= 10 else f"{value:.2g}"


def _count(value: float) -> str:
    return f"{value:,.0f}"
