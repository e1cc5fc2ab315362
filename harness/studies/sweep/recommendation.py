"""What to recommend from the figures at each value: the smallest value near the best. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .grid import Measured, are_numbers, label, plain

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
    at which most calls end ok, beside outages: failing fast is no throughput.
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
    shares = [measured.ok_beside_outages for measured, may in zip(curve, fit, strict=True) if may]
    most = max(shares, default=0.0)
    return [
        may and measured.ok_beside_outages >= most - NOTICED
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
    if chosen == len(values) - 1:
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
