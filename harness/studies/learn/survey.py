"""The first pass over a log, in bounded memory: how long it is, and which part of it to learn
from."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from sfusion_tools.record import Call

from .attempts import PAUSE, has_trouble, joined, seconds_of

_MOST_BUCKETS = 4096
"""Buckets that are kept; with more, each becomes twice as wide (chosen)."""
_QUIET = 0.1
"""The share of all stretches that are quicker than what is usual (chosen)."""
_SLOWER = 0.05
"""The logarithm of how many times as long calls must take to be slower than usual (chosen)."""
_SHORTEST = 1e-4
"""Seconds below which no duration is counted, so that each has a logarithm (chosen)."""
_GOES_ON = 0.5
"""The share of a stretch's trouble, for each call, that its beginning has if the trouble is
older than the stretch (chosen)."""
_AS_BAD = 0.95
"""The share of the most trouble of a stretch from which on chance decides which stretch has the
most (chosen)."""
_MOST_ALIKE = 2 / 3
"""The share of the worst part's trouble up to which another part is different enough to show a
change (chosen)."""
_NEARLY_AS_LONG = 0.8
"""The share of the worst part's calls that such a part has at least (chosen)."""
_NEARLY_FULL = 0.9
"""The share of the calls of the fullest part from which on another is as good to learn from
(chosen)."""
_TENTHS = 10
"""The first of so many parts of the calls is the beginning (chosen)."""
_LONGEST_LOG = 20.0
"""The logarithm of how many times as long calls may take, so that trouble stays finite (chosen: no
log has more)."""


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
    slower: float = 1.0
    """How many times as long as usual in this log a call without trouble takes, by the geometric
    mean."""

    @property
    def is_whole(self) -> bool:
        return self.calls == self.of

    def holds(self, record: Call) -> bool:
        return self.start <= record.began < self.end


class _Counts(NamedTuple):
    calls: int = 0
    troubled: int = 0
    timed: int = 0
    """Calls without trouble whose duration is known."""
    logs: float = 0.0
    """The sum of the logarithms of their durations, which a few very long ones do not change."""

    def plus(self, other: _Counts) -> _Counts:
        return _Counts(
            calls=self.calls + other.calls,
            troubled=self.troubled + other.troubled,
            timed=self.timed + other.timed,
            logs=self.logs + other.logs,
        )

    def minus(self, other: _Counts) -> _Counts:
        return _Counts(
            calls=self.calls - other.calls,
            troubled=self.troubled - other.troubled,
            timed=self.timed - other.timed,
            logs=self.logs - other.logs,
        )

    @property
    def mean(self) -> float:
        return self.logs / self.timed if self.timed else 0.0

    def longer(self, usual: float) -> float:
        """The logarithm of how many times as long as usual calls take; 0 if that is nothing."""
        more = self.mean - usual
        return more if self.timed and more > _SLOWER else 0.0

    def trouble(self, usual: float) -> float:
        """Calls that failed, were retried, or would have fitted into the time lost.

        Calls that take r times as long as usual leave no room for r - 1 others.
        """
        return self.troubled + self.timed * math.expm1(min(self.longer(usual), _LONGEST_LOG))


@dataclass(frozen=True, slots=True)
class _Part:
    """Buckets in a row of one stretch: those from place ``first`` up to, but not at, ``last``."""

    stretch: int
    first: int
    last: int
    counts: _Counts


def _usual(parts: Sequence[_Part]) -> float:
    """The mean of the logarithms in the quiet parts of a log."""
    fullest = max(part.counts.calls for part in parts)
    full = [part.counts for part in parts if part.counts.calls >= fullest / 2]
    means = sorted(counts.mean for counts in full if counts.timed)
    return means[int(_QUIET * len(means))] if means else 0.0


class Survey:
    """Counts calls by time. The buckets get wider when there are too many of them."""

    def __init__(self) -> None:
        self.calls = 0
        self.troubled = 0
        self._width = 1.0
        self._buckets: dict[int, _Counts] = {}

    def add(self, record: Call) -> None:
        is_troubled = has_trouble(record)
        self.calls += 1
        self.troubled += is_troubled
        if not math.isfinite(record.began):
            return
        bucket = math.floor(record.began / self._width)
        took = None if is_troubled else seconds_of(record)
        if took is not None and math.isfinite(took):
            log = math.log(max(took, _SHORTEST))
            self._count(bucket, _Counts(calls=1, timed=1, logs=log))
        else:
            self._count(bucket, _Counts(calls=1, troubled=int(is_troubled)))
        if len(self._buckets) > _MOST_BUCKETS:
            self._widen()

    def _widen(self) -> None:
        """Make buckets twice as wide."""
        old = self._buckets
        self._buckets = {}
        self._width = 2 * self._width
        for bucket, counts in old.items():
            self._count(bucket // 2, counts)

    def _count(self, bucket: int, counts: _Counts) -> None:
        self._buckets[bucket] = self._buckets.get(bucket, _Counts()).plus(counts)

    def window(self, most: int) -> Window | None:
        """Return the stretch of at most about ``most`` calls that has the most trouble; None for
        an empty log."""
        stretches = list(self._stretches())
        parts: list[_Part] = []
        for number, stretch in enumerate(stretches):
            parts += self._parts(number, stretch, most)
        if not parts:
            return None
        usual = _usual(parts)
        most_trouble = max(part.counts.trouble(usual) for part in parts)
        worst = [part for part in parts if part.counts.trouble(usual) >= _AS_BAD * most_trouble]
        fullest = max(part.counts.calls for part in worst)
        full = [part for part in worst if part.counts.calls >= _NEARLY_FULL * fullest]
        chosen = full[len(full) // 2]  # in the middle, so that there is a before and an after
        if most_trouble and self._goes_on(stretches[chosen.stretch], chosen, usual):
            chosen = _with_change(parts, chosen, usual)
        buckets = stretches[chosen.stretch]
        counts = chosen.counts
        start = buckets[chosen.first] * self._width
        end = (buckets[chosen.last - 1] + 1) * self._width
        return Window(
            start=start,
            end=end,
            calls=counts.calls,
            of=self.calls,
            troubled=counts.troubled,
            troubled_of=self.troubled,
            slower=math.exp(counts.longer(usual)),
        )

    def _parts(self, number: int, stretch: list[int], most: int) -> Iterator[_Part]:
        """Yield the longest parts of a stretch that have at most ``most`` calls.

        A window slides over the buckets: at each place it takes in as many as it may, but at least
        one, and then lets go of the first.
        """
        buckets = [self._buckets[bucket] for bucket in stretch]
        last = 0
        counts = _Counts()
        for first, first_counts in enumerate(buckets):
            while last < len(buckets) and (
                last == first or counts.calls + buckets[last].calls <= most
            ):
                counts = counts.plus(buckets[last])
                last += 1
            yield _Part(number, first, last, counts)
            if last == len(buckets):
                break
            counts = counts.minus(first_counts)

    def _goes_on(self, stretch: list[int], part: _Part, usual: float) -> bool:
        """True if there is as much trouble at the beginning of a part as later, so that its
        cause came before."""
        begin = _Counts()
        for bucket in stretch[part.first : part.last]:
            begin = begin.plus(self._buckets[bucket])
            if begin.calls * _TENTHS >= part.counts.calls:
                break
        expected = part.counts.trouble(usual) * begin.calls / part.counts.calls
        return begin.trouble(usual) >= _GOES_ON * expected

    def _stretches(self) -> Iterator[list[int]]:
        """Yield the buckets of each stretch in order: a pause without any call ends it."""
        stretch: list[int] = []
        for bucket in sorted(self._buckets):
            if stretch and (bucket - stretch[-1]) * self._width > PAUSE:
                yield stretch
                stretch = []
            stretch.append(bucket)
        if stretch:
            yield stretch


def _with_change(parts: list[_Part], worst: _Part, usual: float) -> _Part:
    """Return the nearest part in which the trouble of the worst part begins; if there is none, the
    nearest in which it ends; if there is none either, the worst part.

    Such a part is about as long, and has less trouble, because some of it is before or after.
    """
    most = _MOST_ALIKE * worst.counts.trouble(usual)
    fewest = _NEARLY_AS_LONG * worst.counts.calls
    earlier = None
    for part in parts:
        if part.stretch != worst.stretch or part.counts.calls < fewest:
            continue
        if part.counts.trouble(usual) > most:
            continue
        if part.first > worst.first:
            return earlier or part  # parts are in order: this is the first one after the worst
        if part.first < worst.first:
            earlier = part
    return earlier or worst


def sample(records: Iterable[Call], window: Window, most: int) -> list[Call]:
    """Return the first ``most`` calls of a window, in the order in which they began.

    More are in a window of one bucket that is too full. Files come one after the other, so the
    first that are read are not the first that began.
    """
    inside = (record for record in records if window.holds(record))
    return joined(heapq.nsmallest(most, inside, key=attrgetter("began")))
