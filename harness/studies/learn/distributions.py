"""Fits a distribution that a scenario can express to a sample, and says how well it fits."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

_QUANTILES = 40
"""Values of a list that stands for durations of no known shape (chosen)."""
_PLACES = tuple((number + 0.5) / _QUANTILES for number in range(_QUANTILES))
_NEARLY_CONSTANT = 0.1
"""The relative spread up to which durations are one number (chosen)."""
_NOISE = 0.002
"""Seconds of difference that no machine can avoid."""
_FEW = 8
"""Durations below which no shape is looked for (chosen)."""
_GOOD = 0.08
"""A Kolmogorov-Smirnov distance up to which a shape is preferred to a list of quantiles
(chosen)."""
_SPILLED = 0.002
"""The share of a shape that may lie beyond a limit that no value reached (chosen: ten times less
than the two points that a share of outcomes may differ)."""
_JUST_BELOW = 0.99
"""The share of a limit that a value below it may have (chosen)."""
_CLEARLY = 0.03
"""By how much nearer another shape must be than a constant delay (chosen)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """A distribution with the sample's size and its Kolmogorov-Smirnov distance from the sample."""

    shape: str
    numbers: tuple[float, ...]
    size: int
    distance: float

    @property
    def yaml(self) -> Any:
        """The distribution as a scenario writes it."""
        numbers = [rounded(number) for number in self.numbers]
        if self.shape == "constant":
            return numbers[0]
        return {self.shape: numbers[0] if self.shape == "exponential" else numbers}

    @property
    def median(self) -> float:
        match self.shape:
            case "uniform":
                return sum(self.numbers) / 2
            case "exponential":
                return self.numbers[0] * math.log(2)
            case "choice":
                return statistics.median(self.numbers)
        return self.numbers[0]

    def __str__(self) -> str:
        size = f"n = {self.size:,}"
        if self.shape == "constant":
            return f"constant, {size}"
        if self.shape == "choice":
            name = f"{len(self.numbers)} quantiles (no simple shape fits)"
        else:
            name = self.shape
        return f"{name}, KS distance {self.distance:.3f}, {size}"


def rounded(value: float) -> float:
    """Keep three significant digits, and never more than microseconds."""
    if value == 0 or not math.isfinite(value):
        return 0.0
    short = round(round(value, 2 - math.floor(math.log10(abs(value)))), 6)
    return int(short) if short == int(short) and abs(short) >= 1 else short


def quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile of a sorted sample that is not empty, interpolated."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def fit(sample: Sequence[float], below: float = math.inf) -> Fit:
    """Choose the shape that is nearest to a sample; where none is near, its quantiles.

    All values are ``below`` something: a shape of which more than a few are not is not near, and a
    value that seems to be above it was late.
    """
    most = _JUST_BELOW * below
    ordered = sorted(min(max(0.0, value), most) for value in sample)
    size = len(ordered)
    if not size:
        return Fit("constant", (0.0,), 0, 0.0)
    median = quantile(ordered, 0.5)
    if quantile(ordered, 0.95) - quantile(ordered, 0.05) <= max(_NEARLY_CONSTANT * median, _NOISE):
        return Fit("constant", (median,), size, 0.0)
    if size < _FEW:
        return Fit("choice", tuple(ordered), size, 0.0)
    found = [
        Fit(shape, numbers, size, _distance(ordered, cdf))
        for shape, numbers, cdf in _shapes(ordered)
        if math.isinf(below) or 1 - cdf(below) <= _SPILLED
    ]
    best = min(found, key=lambda candidate: candidate.distance, default=None)
    if best is not None and best.distance <= max(_GOOD, 1.5 / math.sqrt(size)):
        return best
    return Fit(
        "choice", tuple(quantile(ordered, place) for place in _PLACES), size, 1 / (2 * _QUANTILES)
    )


Cdf = Callable[[float], float]


def _shapes(ordered: list[float]) -> list[tuple[str, tuple[float, ...], Cdf]]:
    mean = statistics.fmean(ordered)
    deviation = statistics.pstdev(ordered)
    low = ordered[0]
    high = ordered[-1]
    shapes: list[tuple[str, tuple[float, ...], Cdf]] = [
        ("uniform", (low, high), lambda x: (x - low) / (high - low)),
        ("exponential", (mean,), lambda x: 1 - math.exp(-x / mean)),
    ]
    if mean > 3 * deviation:  # else a good part of it would be negative
        shapes.append(("normal", (mean, deviation), statistics.NormalDist(mean, deviation).cdf))
    if low > 0:
        logs = [math.log(value) for value in ordered]
        middle = statistics.fmean(logs)
        sigma = statistics.pstdev(logs)
        if 0 < sigma <= 10:
            normal = statistics.NormalDist(middle, sigma)
            shapes.insert(
                0, ("lognormal", (math.exp(middle), sigma), lambda x: normal.cdf(math.log(x)))
            )
    return shapes


def _distance(ordered: list[float], cdf: Cdf) -> float:
    size = len(ordered)
    return max(
        max((number + 1) / size - share, share - number / size)
        for number, share in ((number, cdf(value)) for number, value in enumerate(ordered))
    )


def sample_distance(one: Sequence[float], other: Sequence[float]) -> float:
    """The Kolmogorov-Smirnov distance of two samples; 1 if one of them is empty."""
    if not one or not other:
        return 1.0
    a = sorted(one)
    b = sorted(other)
    return max(abs(bisect_right(a, x) / len(a) - bisect_right(b, x) / len(b)) for x in (*a, *b))


def added_delay(slow: Sequence[float], quick: Sequence[float]) -> Fit:
    """Fit the delay that, drawn beside each value of one sample, gives the other; neither is
    empty."""
    a = sorted(slow)
    b = sorted(quick)
    more = max(0.0, quantile(a, 0.5) - quantile(b, 0.5))
    found = [_delayed(Fit("constant", (more,), len(a), 0.0), [more], a, b)]
    mean = statistics.fmean(clipped(a)) - statistics.fmean(clipped(b))
    variance = statistics.pvariance(clipped(a)) - statistics.pvariance(clipped(b))
    if mean > 0 and variance > 0:
        sigma = math.sqrt(math.log1p(variance / mean**2))
        middle = mean / math.sqrt(1 + variance / mean**2)
        normals = [statistics.NormalDist().inv_cdf(place) for place in _PLACES]
        drawn = {
            ("lognormal", (middle, sigma)): [
                middle * math.exp(sigma * normal) for normal in normals
            ],
            ("exponential", (mean,)): [-mean * math.log(1 - place) for place in _PLACES],
        }
        found += [
            _delayed(Fit(shape, numbers, len(a), 0.0), draws, a, b)
            for (shape, numbers), draws in drawn.items()
        ]
    best = min(found, key=lambda candidate: candidate.distance)
    return found[0] if found[0].distance < best.distance + _CLEARLY else best


def _delayed(delay: Fit, drawn: Sequence[float], slow: list[float], quick: list[float]) -> Fit:
    values = [quantile(quick, place) + seconds for place in _PLACES for seconds in drawn]
    return replace(delay, distance=sample_distance(values, slow))


def clipped(ordered: list[float]) -> list[float]:
    """A sorted sample whose few outliers are moved to the others."""
    low = quantile(ordered, 0.025)
    high = quantile(ordered, 0.975)
    return [min(high, max(low, value)) for value in ordered]
