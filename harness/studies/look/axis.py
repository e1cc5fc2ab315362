"""Time in a log: what happened in each stretch of it, and how long it took. Memory does not grow
with the log."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sfusion_tools.outcome import FAILURES, Outcome

_RATIO = math.log(1.02)
_LEAST = 1e-6
"""Seconds below which no duration is counted, so that each has a logarithm (chosen)."""
_LOG_LEAST = math.log(_LEAST)
_ZERO = -10_000
TRIMMED = 0.05
"""The share of the shortest and of the longest durations that is left out (chosen)."""
_ENOUGH = 20
"""Durations from which on a typical one says something (chosen)."""
_CANCELLED = Outcome.CANCELLED.value


def size_of(seconds: float) -> float:
    """The logarithm of a duration."""
    return math.log(seconds) if seconds > _LEAST else _LOG_LEAST


@dataclass(slots=True)
class LogSums:
    """The number of durations, and the sums of their logarithms and of the squares of these."""

    count: int = 0
    logs: float = 0.0
    squares: float = 0.0

    def add(self, size: float) -> None:
        """Add the logarithm of a duration."""
        self.count += 1
        self.logs += size
        self.squares += size * size

    def include(self, part: LogSums) -> None:
        self.count += part.count
        self.logs += part.logs
        self.squares += part.squares


class Durations:
    """Counts durations in seconds."""

    __slots__ = ("_bins", "_least", "_most", "sums")

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self._least = math.inf
        self._most = 0.0
        self.sums = LogSums()

    def add(self, seconds: float) -> None:
        size = size_of(seconds)
        self._bins[int(size / _RATIO) if seconds > _LEAST else _ZERO] += 1
        self._least = min(self._least, seconds)
        self._most = max(self._most, seconds)
        self.sums.add(size)

    def merge(self, other: Durations) -> None:
        self._bins.update(other._bins)
        self._least = min(self._least, other._least)
        self._most = max(self._most, other._most)
        self.sums.include(other.sums)

    def typical(self) -> float | None:
        """Return the geometric mean without the shortest and longest 5 %; None if there are too few
        to tell."""
        if self.sums.count < _ENOUGH:
            return None
        low = math.ceil(TRIMMED * self.sums.count)
        high = self.sums.count - low
        before = 0
        total = 0.0
        for bin_ in sorted(self._bins):
            after = before + self._bins[bin_]
            size = math.log(_LEAST) if bin_ == _ZERO else _middle(bin_)
            total += size * max(0, min(after, high) - max(before, low))
            before = after
        return math.exp(total / (high - low))

    def percentile(self, share: float) -> float | None:
        """Return the duration that this share of them does not exceed; None if there are none."""
        left = math.ceil(share * self.sums.count)
        for bin_ in sorted(self._bins):
            left -= self._bins[bin_]
            if left <= 0:
                middle = 0.0 if bin_ == _ZERO else math.exp(_middle(bin_))
                return min(max(middle, self._least), self._most)
        return None


def _middle(bin_: int) -> float:
    """Return the logarithm of the duration in the middle of a bin."""
    return (bin_ + (0.5 if bin_ >= 0 else -0.5)) * _RATIO


MOST_BUCKETS = 2_000
"""Buckets of an axis; with more, each becomes twice as wide (chosen)."""
FINEST = 2.0**-10
"""Seconds of a bucket at first; they double whenever there are too many buckets."""
_FAR = 86_400.0
_FARTHER = 10
_FEW = 0.05
"""Calls are strays if they are fewer than 5 %, and more than a day and ten times the time of the
others away (chosen)."""


def failures(counts: Mapping[str, int]) -> int:
    return sum(count for kind, count in counts.items() if kind in FAILURES)


@dataclass(slots=True)
class Load:
    """How many of something were there at once, in one bucket of time."""

    changes: int = 0
    """Begins less ends."""
    inside: float = 0.0
    """Seconds from each begin to the end of the bucket, less those from each end."""

    def change(self, by: int, until_end: float) -> None:
        self.changes += by
        self.inside += by * until_end

    def include(self, part: Load, rest: float) -> None:
        """Add a bucket within this one, which ends ``rest`` seconds later."""
        self.inside += part.inside + part.changes * rest
        self.changes += part.changes


@dataclass(slots=True)
class SandboxSums:
    """The attempts that one sandbox got, in few bytes."""

    attempts: int = 0
    failed: int = 0
    answers: LogSums = field(default_factory=LogSums)
    """Those that did not fail, and have a duration. Failures say nothing about the speed of a
    sandbox."""

    def add(self, kind: str, size: float | None) -> None:
        """Add an attempt; ``size`` is the logarithm of its duration."""
        self.attempts += 1
        if kind in FAILURES:
            self.failed += 1
        elif size is not None and kind != _CANCELLED:
            self.answers.add(size)

    def include(self, part: SandboxSums) -> None:
        self.attempts += part.attempts
        self.failed += part.failed
        self.answers.include(part.answers)


@dataclass(slots=True)
class TimeBucket:
    """What happened in one stretch of time."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Of calls."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Of attempts, by outcome."""
    faults: Counter[str] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=Durations)
    """Of calls that began: changes are looked for in these, because only long calls end at the end
    of a batch."""
    counted_seconds: Durations = field(default_factory=Durations)
    """Of the calls that ``kinds`` counts, for the row in which they stand."""
    in_flight: Load = field(default_factory=Load)
    waiting: Load = field(default_factory=Load)
    sandboxes: dict[str, SandboxSums] = field(default_factory=dict)
    first: float = math.inf
    """When the first call began."""
    last: float = -math.inf
    """When the last call ended, whenever that began."""

    @property
    def calls(self) -> int:
        return self.kinds.total()

    @property
    def failed(self) -> int:
        return failures(self.kinds)

    def include(self, part: TimeBucket, rest: float) -> None:
        """Add a bucket within this one, which ends ``rest`` seconds later."""
        self.first = min(self.first, part.first)
        self.last = max(self.last, part.last)
        self.kinds.update(part.kinds)
        self.attempts.update(part.attempts)
        self.faults.update(part.faults)
        self.seconds.merge(part.seconds)
        self.counted_seconds.merge(part.counted_seconds)
        self.in_flight.include(part.in_flight, rest)
        self.waiting.include(part.waiting, rest)
        for name, sums in part.sandboxes.items():
            self.sandboxes.setdefault(name, SandboxSums()).include(sums)


class TimeAxis:
    """Counts in buckets of time, which become wider as the time becomes longer."""

    def __init__(self, width: float = FINEST, *, has_strays: bool = True) -> None:
        self.width = width
        self.buckets: dict[int, TimeBucket] = {}
        self.calls = 0
        self.tells: set[str] = set()
        """Of ``in_flight`` and ``waiting``, what the log tells about: of the rest, 0 is a guess."""
        self._has_strays = has_strays

    @property
    def start(self) -> float:
        return min((self.buckets[number].first for number in self._numbers()), default=0.0)

    @property
    def end(self) -> float:
        return max((self.buckets[number].last for number in self._numbers()), default=0.0)

    @property
    def strays(self) -> int:
        """Calls that are left out, because their times are far from those of all others."""
        return self.calls - sum(self.buckets[number].calls for number in self._numbers())

    def stretch(self) -> range:
        """Return the numbers of the buckets from the first to the last, without those of strays."""
        numbers = self._numbers()
        return range(numbers[0], numbers[-1] + 1) if numbers else range(0)

    def number(self, at: float) -> int:
        """Return the number of the bucket of a time."""
        return int(at // self.width)

    def bucket(self, at: float) -> TimeBucket:
        """Return the bucket of a time. Others that were returned before may have become part of
        another."""
        found = self.buckets.get(self.number(at))
        if found is None:
            self.buckets[self.number(at)] = TimeBucket()
            if len(self.buckets) > MOST_BUCKETS:
                while len(self.buckets) > MOST_BUCKETS // 2:
                    self.buckets = self._wider(self.buckets, 0, 2)
                    self.width = self.width * 2
            found = self.buckets[self.number(at)]
        return found

    def occupy(self, what: str, began: float, ended: float) -> None:
        """Count something that was in flight, or waiting, from one time to another."""
        if ended > began:
            load: Load = getattr(self.bucket(began), what)
            load.change(1, self.width - began % self.width)
            load = getattr(self.bucket(ended), what)
            load.change(-1, self.width - ended % self.width)

    def merged(self, most: int) -> list[tuple[float, float, TimeBucket]]:
        """Return at most this many stretches of equal length, empty ones too: begin, end, and what
        began in each."""
        numbers = self._numbers()
        if not numbers:
            return []
        first = numbers[0]
        last = numbers[-1]
        size = max(1, math.ceil((last - first + 1) / most))
        wider = self._wider(numbers, first, size)
        width = size * self.width
        zero = first * self.width
        places = range((last - first) // size + 1)
        return [
            (zero + place * width, zero + (place + 1) * width, wider.get(place) or TimeBucket())
            for place in places
        ]

    def _wider(self, numbers: Iterable[int], first: int, size: int) -> dict[int, TimeBucket]:
        """Return buckets that are ``size`` times as wide, counted from the bucket ``first``."""
        wider: defaultdict[int, TimeBucket] = defaultdict(TimeBucket)
        for number in numbers:
            place, part = divmod(number - first, size)
            wider[place].include(self.buckets[number], (size - 1 - part) * self.width)
        return dict(wider)

    def _numbers(self) -> list[int]:
        """Return the numbers of the buckets in order, without those of strays."""
        numbers = sorted(self.buckets)
        while self._has_strays and len(numbers) > 1:
            gap, cut = max(
                (after - before, place)
                for place, (before, after) in enumerate(pairwise(numbers), 1)
            )
            few, most = sorted((numbers[:cut], numbers[cut:]), key=self._calls_in)
            length = (most[-1] - most[0] + 1) * self.width
            if self._calls_in(few) >= _FEW * self.calls or gap * self.width < max(
                _FAR, _FARTHER * length
            ):
                break
            numbers = most
        return numbers

    def _calls_in(self, numbers: Iterable[int]) -> int:
        return sum(self.buckets[number].calls for number in numbers)


def loads(buckets: Iterable[tuple[float, float, TimeBucket]], what: str) -> Iterator[float]:
    """Yield how many were in flight, or waiting, on average in each stretch of time."""
    before = 0
    for start, end, bucket in buckets:
        load: Load = getattr(bucket, what)
        yield max(0.0, before + load.inside / (end - start))
        before += load.changes
