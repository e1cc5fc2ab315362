"""How many requests were in flight, at any time and on average over any request."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, pairwise

_COINCIDENCE = 0.01
"""The share of the time that makes a number more than a coincidence."""


class InFlight:
    """A step function of time, made of spans from a beginning to an end."""

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        changes: list[tuple[float, int]] = []
        for began, ended in spans:
            changes.append((began, 1))
            changes.append((max(began, ended), -1))
        changes.sort()  # an end comes before a beginning at the same time
        self.times = [at for at, _ in changes]
        self.counts = list(accumulate(change for _, change in changes))
        self.peak = max(self.counts, default=0)
        self._integral = self.integral(float)

    def at(self, time: float) -> int:
        """The number just before a time."""
        place = bisect_left(self.times, time)
        return self.counts[place - 1] if place else 0

    def after(self, time: float) -> int:
        """The number just after a time."""
        place = bisect_right(self.times, time)
        return self.counts[place - 1] if place else 0

    def integral(self, speed: Callable[[int], float]) -> list[float]:
        """The integral of a function of the number in flight, from the first time to each time."""
        steps = ((b - a) * speed(n) for (a, b), n in zip(pairwise(self.times), self.counts, strict=False))
        return list(accumulate(steps, initial=0.0)) if self.times else []

    def between(self, integral: list[float], speed: Callable[[int], float], began: float, ended: float) -> float:
        """The part of an integral between two times."""
        return self._value(integral, speed, ended) - self._value(integral, speed, began)

    def _value(self, integral: list[float], speed: Callable[[int], float], time: float) -> float:
        place = bisect_right(self.times, time) - 1
        if place < 0:
            return 0.0
        return integral[place] + (time - self.times[place]) * speed(self.counts[place])

    def lasting_peak(self, during: InFlight | None = None) -> int:
        """The highest number that was not only a moment's coincidence, while there is any ``during`` it."""
        spent = self._seconds(during)
        whole, so_far = sum(spent.values()), 0.0
        for count, seconds in sorted(spent.items(), reverse=True):
            so_far += seconds
            if so_far > _COINCIDENCE * whole:
                return count
        return self.peak

    def time_from(self, count: float) -> float:
        """How long at least that many were in flight."""
        return sum(seconds for n, seconds in self._seconds().items() if n >= count)

    def _seconds(self, during: InFlight | None = None) -> dict[int, float]:
        """How long each number was in flight."""
        spent: dict[int, float] = {}
        for a, b in pairwise(sorted({*self.times, *(during.times if during else ())})):
            if during is None or during.after(a) > 0:
                count = self.after(a)
                spent[count] = spent.get(count, 0.0) + b - a
        return spent

    def mean_square(self, began: float, ended: float) -> float:
        """The average of the square over a span of time."""

        def square(count: int) -> float:
            return float(count) ** 2

        return self.between(self.integral(square), square, began, ended) / (ended - began)

    def mean(self, began: float, ended: float) -> float:
        """The average over a span of time."""
        if ended <= began:
            return float(self.at(began))
        return self.between(self._integral, float, began, ended) / (ended - began)
