"""What a log says in all: counts over time, sandboxes, faults, and a few whole calls. Memory does not grow with it."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sfusion.harness.logs.histogram import Durations
from sfusion.harness.logs.record import LoggedAttempt, LoggedCall
from sfusion_tools.outcome import Outcome

MOST_BUCKETS = 2_000
FINEST = 2.0**-10
"""Seconds of a bucket at first; they double whenever there are too many buckets."""
MOST_NAMES = 50
"""Sandboxes, faults and problems that are counted by name; the rest is counted together."""
MOST_WORKERS = 100_000
OTHERS = "(others)"
KEPT = 150
"""Calls of each sample: the first, the last, the slowest, those with most attempts, and of each kind."""

ANSWERED, UNFINISHED, UNKNOWN = "answered", "unfinished", "unknown"
"""Kinds of calls whose outcome is not in the log: status 200, no end, neither."""

FAILURES = frozenset(
    outcome.value for outcome in Outcome if outcome.is_infrastructure and outcome is not Outcome.CANCELLED
)
"""Kinds of calls that failed, and neither the program, nor the model, nor the caller is to blame."""


def failures(counts: Mapping[str, int]) -> int:
    return sum(count for kind, count in counts.items() if kind in FAILURES)


def kind_of(record: LoggedCall) -> str:
    """Return the outcome of a call, or how much of it is known."""
    if record.outcome is not None:
        return record.outcome
    if record.attempts and record.attempts[-1].status == 200:
        return ANSWERED
    return UNFINISHED if record.seconds is None and record.source in ("client", "server") else UNKNOWN


@dataclass(slots=True)
class Load:
    """How many of something were there at once, in one bucket of time."""

    changes: int = 0
    """Begins less ends."""
    inside: float = 0.0
    """Seconds from each begin to the end of the bucket, less those from each end."""

    def begin(self, until_end: float) -> None:
        self.changes += 1
        self.inside += until_end

    def end(self, until_end: float) -> None:
        self.changes -= 1
        self.inside -= until_end

    def include(self, part: Load, rest: float) -> None:
        """Add a bucket within this one, which ends ``rest`` seconds later."""
        self.inside += part.inside + part.changes * rest
        self.changes += part.changes


@dataclass(slots=True)
class SandboxSums:
    """The attempts that one sandbox got in one stretch of time, in few bytes."""

    attempts: int = 0
    failed: int = 0
    timed: int = 0
    """How many have a duration."""
    logs: float = 0.0
    squares: float = 0.0

    @property
    def typical(self) -> float | None:
        """The geometric mean of the durations."""
        return math.exp(self.logs / self.timed) if self.timed else None

    def include(self, part: SandboxSums) -> None:
        self.attempts += part.attempts
        self.failed += part.failed
        self.timed += part.timed
        self.logs += part.logs
        self.squares += part.squares


@dataclass(slots=True)
class TimeBucket:
    """What began in one stretch of time."""

    kinds: Counter[str] = field(default_factory=Counter)
    """Of calls."""
    attempts: Counter[str] = field(default_factory=Counter)
    """Of attempts, by outcome."""
    faults: Counter[str] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=Durations)
    logs: float = 0.0
    """Sum of the logarithms of the durations, and of their squares."""
    squares: float = 0.0
    in_flight: Load = field(default_factory=Load)
    waiting: Load = field(default_factory=Load)
    sandboxes: dict[str, SandboxSums] = field(default_factory=dict)

    @property
    def calls(self) -> int:
        return self.kinds.total()

    @property
    def failed(self) -> int:
        return failures(self.kinds)

    def include(self, part: TimeBucket, rest: float) -> None:
        """Add a bucket within this one, which ends ``rest`` seconds later."""
        self.kinds.update(part.kinds)
        self.attempts.update(part.attempts)
        self.faults.update(part.faults)
        self.seconds.merge(part.seconds)
        self.logs += part.logs
        self.squares += part.squares
        self.in_flight.include(part.in_flight, rest)
        self.waiting.include(part.waiting, rest)
        for name, sums in part.sandboxes.items():
            self.sandboxes.setdefault(name, SandboxSums()).include(sums)


@dataclass(slots=True)
class SandboxCounts:
    """The attempts that one sandbox got."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=Durations)

    @property
    def attempts(self) -> int:
        return self.outcomes.total()

    @property
    def failed(self) -> int:
        return failures(self.outcomes)


class Digest:
    """Takes calls in any order."""

    def __init__(self) -> None:
        self.width = FINEST
        self.buckets: dict[int, TimeBucket] = {}
        self.calls = 0
        self.attempts = 0
        self.kinds: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.sandboxes: dict[str, SandboxCounts] = {}
        self.workers: set[str] = set()
        self.seconds, self.waits = Durations(), Durations()
        self.retried = 0
        self.refused = 0
        """Calls that the guard did not let through."""
        self.timed = True
        self.start, self.end = math.inf, -math.inf
        self._samples = _Samples()

    def add(self, record: LoggedCall) -> None:
        """Count a call."""
        kind, began = kind_of(record), record.began
        ended = began + (record.seconds or 0.0)
        self.calls += 1
        self.kinds[kind] += 1
        self.sources[record.source] += 1
        self.start, self.end = min(self.start, began), max(self.end, ended)
        if record.worker and len(self.workers) < MOST_WORKERS:
            self.workers.add(record.worker)
        if record.problem is not None:
            _count(self.problems, record.problem)
        if record.refused:
            self.refused += 1
        if not record.timed and self.timed:
            self.timed = False
            self._coarsen_to(1.0)
        bucket = self._bucket(began)
        bucket.kinds[kind] += 1
        if record.seconds is not None and record.outcome != Outcome.BAD_ARGUMENTS.value:
            self.seconds.add(record.seconds)
            bucket.seconds.add(record.seconds)
            size = math.log(max(record.seconds, 1e-6))
            bucket.logs += size
            bucket.squares += size * size
        for attempt in record.attempts:
            if attempt.fault is not None:
                _count(self.faults, attempt.fault)
                _count(bucket.faults, attempt.fault)
        # From here on buckets may become wider, and this one part of another.
        if record.attempts:
            self.retried += len(record.attempts) > 1
            for attempt in record.attempts:
                self._add_attempt(attempt, began)
        elif record.seconds and kind == Outcome.THROTTLED.value:
            self.waits.add(record.seconds)
            self._occupy("waiting", began, ended)
        self._samples.add(record, kind)

    def _add_attempt(self, attempt: LoggedAttempt, began: float) -> None:
        self.attempts += 1
        label = attempt.sandbox
        counts = self.sandboxes.get(label)
        if counts is None:
            label = label if len(self.sandboxes) < MOST_NAMES else OTHERS
            counts = self.sandboxes.setdefault(label, SandboxCounts())
        outcome = attempt.outcome or (ANSWERED if attempt.status == 200 else UNKNOWN)
        counts.outcomes[outcome] += 1
        bucket = self._bucket(attempt.began)
        bucket.attempts[outcome] += 1
        sums = bucket.sandboxes.get(label)
        if sums is None:
            sums = bucket.sandboxes[label] = SandboxSums()
        sums.attempts += 1
        sums.failed += outcome in FAILURES
        if attempt.seconds is not None:
            counts.seconds.add(attempt.seconds)
            size = math.log(max(attempt.seconds, 1e-6))
            sums.timed += 1
            sums.logs += size
            sums.squares += size * size
            self._occupy("in_flight", attempt.began, attempt.began + attempt.seconds)
        if attempt.waited > 0:
            self.waits.add(attempt.waited)
            self._occupy("waiting", max(attempt.began - attempt.waited, began), attempt.began)

    def _occupy(self, what: str, began: float, ended: float) -> None:
        if ended > began:
            load: Load = getattr(self._bucket(began), what)
            load.begin((self._number(began) + 1) * self.width - began)
            load = getattr(self._bucket(ended), what)
            load.end((self._number(ended) + 1) * self.width - ended)

    def _number(self, at: float) -> int:
        return math.floor(at / self.width)

    def _bucket(self, at: float) -> TimeBucket:
        found = self.buckets.get(self._number(at))
        if found is None:
            self.buckets[self._number(at)] = TimeBucket()
            if len(self.buckets) > MOST_BUCKETS:
                while len(self.buckets) > MOST_BUCKETS // 2:
                    self._double()
            found = self.buckets[self._number(at)]
        return found

    def _coarsen_to(self, width: float) -> None:
        while self.width < width:
            self._double()

    def _double(self) -> None:
        """Make the buckets twice as wide."""
        self.buckets, self.width = self._wider(0, 2), self.width * 2

    def _wider(self, first: int, size: int) -> dict[int, TimeBucket]:
        """Return buckets that are ``size`` times as wide, counted from the bucket ``first``."""
        wider: dict[int, TimeBucket] = {}
        for number, bucket in self.buckets.items():
            place, part = divmod(number - first, size)
            wider.setdefault(place, TimeBucket()).include(bucket, (size - 1 - part) * self.width)
        return wider

    def merged(self, most: int) -> list[tuple[float, float, TimeBucket]]:
        """Return at most this many stretches of equal length, empty ones too: begin, end, and what began in each."""
        if not self.buckets:
            return []
        first, last = min(self.buckets), max(self.buckets)
        size = max(1, math.ceil((last - first + 1) / most))
        wider, width = self._wider(first, size), size * self.width
        zero = first * self.width
        places = range((last - first) // size + 1)
        return [
            (zero + place * width, zero + (place + 1) * width, wider.get(place) or TimeBucket()) for place in places
        ]

    def samples(self) -> list[LoggedCall]:
        """Return some whole calls, in the order in which they began."""
        return self._samples.records()


def loads(buckets: Iterable[tuple[float, float, TimeBucket]], what: str) -> Iterator[float]:
    """Yield how many were in flight, or waiting, on average in each stretch of time."""
    before = 0
    for start, end, bucket in buckets:
        load: Load = getattr(bucket, what)
        yield max(0.0, before + load.inside / (end - start))
        before += load.changes


class _Samples:
    def __init__(self) -> None:
        self._first: list[LoggedCall] = []
        self._last: deque[LoggedCall] = deque(maxlen=KEPT)
        self._slowest: list[tuple[float, int, LoggedCall]] = []
        self._most: list[tuple[int, int, LoggedCall]] = []
        self._kinds: dict[str, list[LoggedCall]] = {}
        self._seen: Counter[str] = Counter()
        self._number = itertools.count()

    def add(self, record: LoggedCall, kind: str) -> None:
        if len(self._first) < KEPT:
            self._first.append(record)
            return
        self._last.append(record)
        number = next(self._number)
        if record.seconds is not None and (len(self._slowest) < KEPT or record.seconds > self._slowest[0][0]):
            _keep(self._slowest, (record.seconds, number, record))
        if len(record.attempts) > 1 and (len(self._most) < KEPT or len(record.attempts) > self._most[0][0]):
            _keep(self._most, (len(record.attempts), number, record))
        # Spread over the log: the sample is thinned out whenever it is full, and then takes only every second call.
        kept, seen = self._kinds.setdefault(kind, []), self._seen[kind]
        self._seen[kind] += 1
        if seen % _stride(seen) == 0:
            kept.append(record)
            if len(kept) > 2 * KEPT:
                del kept[1::2]

    def records(self) -> list[LoggedCall]:
        heaps = [record for heap in (self._slowest, self._most) for _, _, record in heap]
        kinds = [record for kept in self._kinds.values() for record in kept]
        chosen = {id(record): record for record in [*self._first, *self._last, *heaps, *kinds]}
        return sorted(chosen.values(), key=lambda record: record.began)


def _stride(seen: int) -> int:
    return 1 << max(0, (seen // (2 * KEPT)).bit_length())


def _keep(heap: list[Any], item: Any) -> None:
    (heapq.heappush if len(heap) < KEPT else heapq.heappushpop)(heap, item)


def _count(counter: Counter[str], name: str) -> None:
    counter[name if name in counter or len(counter) < MOST_NAMES else OTHERS] += 1
