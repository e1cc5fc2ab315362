"""The result of a sweep: what was measured at each setting, and what follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from ...lab.scenarios.parts import ObservedPart
from .grid import SCENARIO, Grid, Measured, SeedSpread, Values, are_numbers, label, plain

NEAR_BEST = 0.02
"""The recommended value loses at most this share of the best throughput (chosen)."""
WITHIN_SPREAD = 0.05
"""It may lose this much if its seeds and those of the best value overlap: then the difference
may be chance (chosen)."""
SMALL_LOSS = 0.03
"""Values that lose less than this share are called equally good (chosen)."""
NOTICED = 0.01
"""Share of refused attempts, or of calls that do not end ok, from which they are worth a word
(chosen)."""
RISING = 0.5
"""Throughput rises as long as it gains at least this share of what proportional growth would
gain (chosen)."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The value to set under one condition; ``value`` is None if no value works."""

    value: Any
    reason: str
    sensitivity: str
    knee: Any = None
    loss: float = 0.0
    """The share of the best throughput that it gives up."""
    is_bounded: bool = False
    """True if the model would recommend less, but the log tells about this value and more only."""
    cannot_tell: bool = False
    """True if the log that the scenario was learned from does not reach as far."""

    @property
    def sentence(self) -> str:
        return "; ".join(filter(None, (self.reason, self.sensitivity)))


def recommend(values: Sequence[Any], curve: Sequence[Measured]) -> Recommendation:
    """Recommend one of the values, which are in rising order if they are numbers."""
    allowed, losses, good = _judged(curve)
    if not any(allowed):
        return Recommendation(None, "no call ended ok at any value", _why(curve))
    chosen = good.index(True)
    knee = _knee(values, curve)
    rate = f"{plain(curve[chosen].throughput.median)} calls per second"
    if losses[chosen] > 0.001:
        rate += f", {losses[chosen]:.1%} below the best"
    if losses[chosen] > NEAR_BEST:
        rate += ", which is within the spread over the seeds"
    reason = f"{rate}{_end_of_growth(values, curve, chosen, losses)}"
    if curve[chosen].ok_share < 1 - NOTICED:
        reason += (
            f"; {1 - curve[chosen].ok_share:.0%} of the calls do not end ok: mostly "
            f"{curve[chosen].main_failure}"
        )
    if curve[chosen].broken:
        reason += (
            "; every value breaks a promise "
            f"({', '.join(sorted(set().union(*(measured.broken for measured in curve))))})"
        )
    sensitivity = "; ".join(
        _sensitivity(values=values, curve=curve, chosen=chosen, losses=losses, good=allowed)
    )
    return Recommendation(
        value=values[chosen],
        reason=reason,
        sensitivity=sensitivity,
        knee=knee,
        loss=max(0.0, losses[chosen]),
    )


def _value_of(recommendation: Recommendation) -> str:
    """Return the recommended value as it is shown."""
    if recommendation.cannot_tell:
        return "cannot tell"
    if recommendation.value is None:
        return "none"
    return label(recommendation.value)


def within(
    recommendation: Recommendation,
    least: float,
    most: float | None,
    unknown: str,
    values: Sequence[Any] = (),
) -> Recommendation:
    """Withdraw a recommendation beyond what a log showed; say what it does not tell.

    Where the log tells about more than the model recommends, the least of these ``values`` that it
    tells about does no harm.
    """
    if recommendation.value is None or not are_numbers([recommendation.value]):
        return recommendation
    # With only one number there is nothing to compare, not even that one.
    if (
        least != most
        and recommendation.value >= least
        and (most is None or recommendation.value <= most)
    ):
        return replace(
            recommendation,
            sensitivity="; ".join(filter(None, (recommendation.sensitivity, unknown))),
        )
    shown = f"{least:g}"
    if most is None:
        shown += " and more"
    elif most != least:
        shown += f" to {most:g}"
    reason = (
        f"the model would say {label(recommendation.value)}, but what it was made from tells only "
        f"about {shown}"
    )
    known = [value for value in values if value >= least and (most is None or value <= most)]
    if least != most and recommendation.value < least and known:
        return replace(
            recommendation,
            value=min(known),
            is_bounded=True,
            reason=f"{label(min(known))} does as much as more; {reason}",
            sensitivity=unknown,
        )
    return replace(recommendation, value=None, reason=reason, sensitivity=unknown, cannot_tell=True)


def recommend_for_all(
    values: Sequence[Any], curves: Mapping[str, Sequence[Measured]]
) -> tuple[Any, float] | None:
    """The first value that is good enough under every condition, and the share that it loses at
    worst.

    If there is none, the one that loses least where it loses most; None if no value works under
    every condition.
    """
    allowed_losses = []
    good = [True] * len(values)
    for curve in curves.values():
        allowed, losses, good_here = _judged(curve)
        allowed_losses.append(
            [loss if may else 1.0 for loss, may in zip(losses, allowed, strict=True)]
        )
        good = [both and here for both, here in zip(good, good_here, strict=True)]
    worst = [max(losses) for losses in zip(*allowed_losses, strict=True)]
    if min(worst) >= 1.0:
        return None
    place = good.index(True) if any(good) else worst.index(min(worst))
    return values[place], max(0.0, worst[place])


def _judged(curve: Sequence[Measured]) -> tuple[list[bool], list[float], list[bool]]:
    """Which settings may be recommended, the share of the best throughput that each loses, and
    which are good enough.

    Those may be recommended that work and, if there are any, keep every promise; of these, the ones
    at which most calls end ok: failing fast is no throughput.
    """
    allowed = _allowed(curve)
    if not any(allowed):
        return allowed, [1.0] * len(curve), allowed
    candidates = [measured for measured, may in zip(curve, allowed, strict=True) if may]
    best = max(candidates, key=lambda measured: measured.throughput.median).throughput
    losses: list[float] = []
    good: list[bool] = []
    for measured, may in zip(curve, allowed, strict=True):
        loss = 1 - measured.throughput.median / best.median
        tolerated = WITHIN_SPREAD if measured.throughput.high >= best.low else NEAR_BEST
        losses.append(loss)
        good.append(may and loss <= tolerated)
    return allowed, losses, good


def _allowed(curve: Sequence[Measured]) -> list[bool]:
    """Return which settings may be recommended."""
    working = [measured.throughput.median > 0 and not measured.errors for measured in curve]
    keeping = [
        works and not measured.broken for works, measured in zip(working, curve, strict=True)
    ]
    fit = keeping if any(keeping) else working
    shares = [measured.ok_share for measured, may in zip(curve, fit, strict=True) if may]
    most = max(shares, default=0.0)
    return [
        may and measured.ok_share >= most - NOTICED
        for measured, may in zip(curve, fit, strict=True)
    ]


def _knee(values: Sequence[Any], curve: Sequence[Measured]) -> Any:
    """The last value up to which throughput rises with it; None if it never rises, or rises to
    the end."""
    if not are_numbers(values) or values[0] <= 0:
        return None
    for place in range(len(values) - 1):
        now = curve[place].throughput.median
        then = curve[place + 1].throughput.median
        if now <= 0:
            continue
        growth = math.log(values[place + 1] / values[place])
        if then <= 0 or math.log(then / now) < RISING * growth:
            return values[place] if place else None
    return None


def _end_of_growth(
    values: Sequence[Any], curve: Sequence[Measured], chosen: int, losses: Sequence[float]
) -> str:
    if len(values) == 1:
        return ""
    if max(map(abs, losses)) < SMALL_LOSS:
        if not are_numbers(values):
            return f"; all values are within {SMALL_LOSS:.0%} of each other"
        return (
            f"; all values from {label(values[0])} to {label(values[-1])} are within "
            f"{SMALL_LOSS:.0%} of each other"
        )
    if not are_numbers(values):
        return ""
    if chosen == len(values) - 1 and losses[chosen - 1] > SMALL_LOSS:
        return "; the last value that was tried, so a higher one may be better"
    if chosen == 0:
        return "; the first value that was tried, so a lower one may do as well"
    return "; more gains nothing"


def _sensitivity(
    values: Sequence[Any],
    curve: Sequence[Measured],
    chosen: int,
    losses: Sequence[float],
    good: Sequence[bool],
) -> list[str]:
    """What the other values lose, and why."""
    low = high = chosen
    while low > 0 and good[low - 1] and losses[low - 1] < SMALL_LOSS:
        low -= 1
    while high < len(values) - 1 and good[high + 1] and losses[high + 1] < SMALL_LOSS:
        high += 1
    said = []
    if low < high and max(map(abs, losses)) >= SMALL_LOSS:
        most = max(SMALL_LOSS, math.ceil(100 * losses[chosen]) / 100)
        said.append(f"{label(values[low])} to {label(values[high])} lose under {most:.0%}")
    if low > 0:
        said.append(_loss(values[low - 1], losses[low - 1]) + _cause(curve[low - 1], curve[chosen]))
    if high < len(values) - 1:
        beyond = high + 1
        said.append(_loss(values[beyond], losses[beyond]) + _cause(curve[beyond], curve[chosen]))
    refused = next(
        (place for place in range(len(values)) if _refusal_share(curve[place]) > NOTICED), None
    )
    if refused is not None and refused > high + 1:
        said.append(
            f"from {label(values[refused])} on the sandbox gives {_main_reason(curve[refused])}"
        )
    return said


def _loss(value: Any, loss: float) -> str:
    if abs(loss) < 0.005:
        return f"{label(value)} is as fast"
    return (
        f"{label(value)} loses {loss:.0%}" if loss > 0 else f"{label(value)} is {-loss:.0%} faster"
    )


def _cause(measured: Measured, chosen: Measured) -> str:
    new = [promise for promise in measured.broken if promise not in chosen.broken]
    if new:
        return f" and breaks {', '.join(new)}"
    if measured.ok_share < chosen.ok_share - NOTICED:
        lost = 1 - measured.ok_share
        return f" ({lost:.0%} of the calls do not end ok: mostly {measured.main_failure})"
    if _refusal_share(measured) > max(NOTICED, 2 * _refusal_share(chosen)):
        reason = _main_reason(measured)
        return f" (the sandbox gives {reason} to {_refusal_share(measured):.0%} of the attempts)"
    if (
        measured.wasted.median > NOTICED * measured.attempts.median
        and measured.wasted.median > 2 * chosen.wasted.median
    ):
        return (
            f" ({measured.wasted.median / measured.attempts.median:.0%} of the attempts end with "
            f"{_main_reason(measured)})"
        )
    return ""


def _refusal_share(measured: Measured) -> float:
    return measured.refused.median / measured.attempts.median if measured.attempts.median else 0.0


def _main_reason(measured: Measured) -> str:
    return max(measured.failures, key=lambda reason: measured.failures[reason], default="errors")


def _why(curve: Sequence[Measured]) -> str:
    errors = [error for measured in curve for error in measured.errors]
    if errors:
        return errors[0]
    return (
        f"the calls ended with {curve[0].main_failure}" if curve and curve[0].main_failure else ""
    )


def observes(observed: ObservedPart | None, grid: Grid, values: Values) -> bool:
    """Does what a log showed, or a measurement, reach as far as this setting?"""
    if observed is None or grid.chosen.path != "tools.rate_limit":
        return True
    value = values[grid.axes.index(grid.chosen)]
    least, most = observed.rate_limit
    return bool(least <= value and (most is None or value <= most))


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
        values = self.grid.chosen.values
        found = {name: recommend(values, curve) for name, curve in self.curves.items()}
        if self.observed is None or self.grid.chosen.path != "tools.rate_limit":
            return found
        least, most = self.observed.rate_limit
        return {
            name: within(recommendation, least, most, self.observed.unknown, values)
            for name, recommendation in found.items()
        }

    @cached_property
    def overall(self) -> tuple[Any, float] | None:
        """The value that is good under every condition, and the share that it loses at worst;
        None if none works."""
        if self.grid.compares or self._cannot_tell:
            return None
        found = recommend_for_all(self.grid.chosen.values, self.curves)
        bounded = [found.value for found in self.recommendations.values() if found.is_bounded]
        return (max(bounded), 0.0) if found is not None and bounded else found

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
            return f"{path}: cannot tell"
        if self.overall is None:
            return f"{path}: no value can be recommended"
        value, loss = self.overall
        if len(self.curves) == 1:
            return f"{path}: {label(value)}"
        most = f"loses at most {loss:.1%}" if loss > 0.001 else "the best throughput"
        conditions = (
            "both conditions" if len(self.curves) == 2 else f"all {len(self.curves)} conditions"
        )
        return f"{path}: {label(value)} ({most} under {conditions})"

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
        return not self._cannot_tell or observes(self.observed, self.grid, values)

    @property
    def _cannot_tell(self) -> bool:
        return any(recommendation.cannot_tell for recommendation in self.recommendations.values())

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
