"""The first pass over a log, in bounded memory: how long it is, and which part of it to learn from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sfusion.harness.learning.attempts import has_trouble, joined
from sfusion.harness.logs.record import LoggedCall

_MOST_BUCKETS = 4096
_PAUSE = 600.0
"""Seconds without any call that end a stretch: a night, another job, or a clock that jumped."""


@dataclass(frozen=True, slots=True)
class Window:
    """The stretch of a log that is learned from."""

    start: float
    end: float
    calls: int
    """Calls in the stretch."""
    of: int
    """Calls in the whole log."""
    troubled: int
    """Calls in the stretch that failed or were retried."""
    troubled_of: int

    @property
    def is_whole(self) -> bool:
        return self.calls == self.of

    def holds(self, record: LoggedCall) -> bool:
        return self.start <= record.began < self.end


class Survey:
    """Counts calls by time. The buckets get wider when there are too many of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.troubled = 0
        self._width = 1.0
        self._buckets: dict[int, tuple[int, int]] = {}

    def add(self, record: LoggedCall) -> None:
        trouble = has_trouble(record)
        self.calls += 1
        self.troubled += trouble
        if math.isfinite(record.began):
            self._count(math.floor(record.began / self._width), 1, int(trouble))
            if len(self._buckets) > _MOST_BUCKETS:
                self._widen()

    def _count(self, bucket: int, calls: int, troubled: int) -> None:
        before = self._buckets.get(bucket, (0, 0))
        self._buckets[bucket] = before[0] + calls, before[1] + troubled

    def _widen(self) -> None:
        old, self._buckets = self._buckets, {}
        self._width *= 2
        for bucket, counts in old.items():
            self._count(bucket // 2, *counts)

    def window(self, most: int) -> Window | None:
        """Return the stretch of at most about ``most`` calls that has the most trouble; None for an empty log."""
        found = list(self._windows(most))
        if not found:
            return None
        worst = max(one.troubled for one in found)
        best = [one for one in found if one.troubled == worst]
        fullest = max(one.calls for one in best)
        full = [one for one in best if one.calls >= 0.9 * fullest]
        return full[len(full) // 2]  # in the middle, so that there is a before and an after

    def _windows(self, most: int) -> Iterator[Window]:
        for stretch in self._stretches():
            last, calls, troubled = 0, 0, 0
            for first, bucket in enumerate(stretch):
                while last < len(stretch) and (last == first or calls + self._buckets[stretch[last]][0] <= most):
                    calls += self._buckets[stretch[last]][0]
                    troubled += self._buckets[stretch[last]][1]
                    last += 1
                start, end = bucket * self._width, (stretch[last - 1] + 1) * self._width
                yield Window(start, end, calls, self.calls, troubled, self.troubled)
                if last == len(stretch):
                    break
                calls -= self._buckets[bucket][0]
                troubled -= self._buckets[bucket][1]

    def _stretches(self) -> Iterator[list[int]]:
        stretch: list[int] = []
        for bucket in sorted(self._buckets):
            if stretch and (bucket - stretch[-1]) * self._width > _PAUSE:
                yield stretch
                stretch = []
            stretch.append(bucket)
        if stretch:
            yield stretch


def survey(records: Iterable[LoggedCall]) -> Survey:
    """Read a log once."""
    made = Survey()
    for record in records:
        made.add(record)
    return made


def sample(records: Iterable[LoggedCall], window: Window, most: int) -> list[LoggedCall]:
    """Return the calls of a window, in the order in which they began; a bucket too full for ``most`` is cut."""
    inside = itertools.islice((record for record in records if window.holds(record)), most)
    return joined(inside)
