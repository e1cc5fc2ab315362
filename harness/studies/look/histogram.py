"""A histogram of durations with bins of equal ratio: any number of them in little memory, percentiles within 3 %."""

from __future__ import annotations

import math
from collections import Counter

_RATIO = math.log(1.05)
_LEAST = 1e-6
_ZERO = -1_000
_TRIMMED, _ENOUGH = 0.05, 20


class Durations:
    """Counts durations in seconds."""

    __slots__ = ("_bins", "count")

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self.count = 0

    def add(self, seconds: float) -> None:
        self._bins[int(math.log(seconds) / _RATIO) if seconds > _LEAST else _ZERO] += 1
        self.count += 1

    def merge(self, other: Durations) -> None:
        self._bins.update(other._bins)
        self.count += other.count

    def typical(self) -> float | None:
        """Return the geometric mean without the shortest and longest 5 %; None if there are too few to tell."""
        if self.count < _ENOUGH:
            return None
        low, high = math.ceil(_TRIMMED * self.count), self.count - math.ceil(_TRIMMED * self.count)
        before, total = 0, 0.0
        for bin_ in sorted(self._bins):
            after = before + self._bins[bin_]
            size = math.log(_LEAST) if bin_ == _ZERO else _middle(bin_)
            total += size * max(0, min(after, high) - max(before, low))
            before = after
        return math.exp(total / (high - low))

    def percentile(self, share: float) -> float | None:
        """Return the duration that this share of them does not exceed; None if there are none."""
        left = math.ceil(share * self.count)
        for bin_ in sorted(self._bins):
            left -= self._bins[bin_]
            if left <= 0 and self.count:
                return 0.0 if bin_ == _ZERO else math.exp(_middle(bin_))
        return None


def _middle(bin_: int) -> float:
    """Return the logarithm of the duration in the middle of a bin."""
    return (bin_ + (0.5 if bin_ >= 0 else -0.5)) * _RATIO
