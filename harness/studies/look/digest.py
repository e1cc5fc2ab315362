"""What a log says in all: counts over time, sandboxes, faults, and a few whole calls. Memory
does not grow with it."""

from __future__ import annotations

import heapq
import itertools
import math
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sfusion_tools.outcome import Outcome
from sfusion_tools.record import Attempt, Call

from .axis import FINEST, Durations, SandboxSums, TimeAxis, size_of

_FEWEST = 20
_SHORTEST_SHIFT = 2.0
_SHIFT = 0.1
"""Calls of a worker, and seconds or share of its time, from which on its clock may be another
one (chosen)."""


def clocks_apart(workers: Iterable[Sequence[float]]) -> float:
    """By how many seconds the clocks of workers seem to differ; 0 if they do not.

    Of each worker: when its first call began, when its last one ended, and how many it made.
    """
    spans = [(first, last) for first, last, calls in workers if calls >= _FEWEST]
    if len(spans) < 2:
        return 0.0
    earliest = min(spans)
    least = max(_SHORTEST_SHIFT, _SHIFT * statistics.median(last - first for first, last in spans))
    late = [(first - earliest[0], last - earliest[1]) for first, last in spans]
    shifted = [span for span in late if span[0] >= least]
    same = all(abs(a - b) <= max(_SHORTEST_SHIFT, 0.2 * a) for a, b in shifted)
    return max(a for a, _ in shifted) if shifted and same else 0.0


MOST_NAMES = 50
"""Sandboxes, faults and problems that are counted by name; the rest is counted together
(chosen)."""
MOST_WORKERS = 100_000
"""Workers whose clocks are compared (chosen: bounds the memory)."""
OTHERS = "(others)"
KEPT = 150
"""Calls of each sample: the first, the last, the slowest, those with most attempts, and of each
kind (chosen)."""

_HUNG = Outcome.TRANSPORT_TIMEOUT.value
NO_ANSWER = frozenset({Outcome.UNREACHABLE.value, Outcome.BAD_ARGUMENTS.value})
"""Kinds of calls and attempts that got no answer of a sandbox, so that their time says nothing
about it."""


def happened_at(record: Call, ended: float) -> float:
    """When a call met its end: at the end of its last attempt; one without an answer was lost
    when it was sent."""
    if not record.attempts:
        return ended
    last = record.attempts[-1]
    if last.seconds is None or last.outcome is Outcome.TRANSPORT_TIMEOUT:
        return record.began + last.after
    return record.began + last.after + last.seconds


Clock = Literal["unix", "seconds", "line", "step"]
"""What times count: unix time, seconds of a run, lines of an access log, steps of a training."""
_EARLIEST_DATE = 1e8
"""Smaller times count from the beginning of a run (chosen)."""


def clock_of(record: Call) -> Clock:
    if record.timed:
        return "unix" if record.began > _EARLIEST_DATE else "seconds"
    return "step" if record.source == "dump" else "line"


@dataclass(slots=True)
class SandboxCounts:
    """The attempts that one sandbox got in the whole log."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: Durations = field(default_factory=Durations)
    sums: SandboxSums = field(default_factory=SandboxSums)


class Digest:
    """Takes calls in any order."""

    def __init__(self) -> None:
        self._axes: dict[Clock, TimeAxis] = {}
        self.calls = 0
        self.attempts = 0
        self.kinds: Counter[str] = Counter()
        self.sources: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.problems: Counter[str] = Counter()
        self.read: Counter[tuple[str, str]] = Counter()
        """What the model read of failures: outcome and text."""
        self.sandboxes: dict[str, SandboxCounts] = {}
        self.workers: dict[str, tuple[float, float, int]] = {}
        """When the first call of each began, and its last one ended; and how many it made."""
        self.seconds = Durations()
        self.waits = Durations()
        self.retried = 0
        self.refused = 0
        """Calls that the guard did not let through."""
        self._samples = _Samples()

    @property
    def clock(self) -> Clock:
        """The clock of most calls; those of others are not on the axis."""
        return max(self._axes, key=lambda clock: self._axes[clock].calls, default="seconds")

    @property
    def axis(self) -> TimeAxis:
        return self._axes.get(self.clock) or TimeAxis()

    @property
    def timed(self) -> bool:
        return self.clock in ("unix", "seconds")

    @property
    def off_axis(self) -> int:
        """Calls that are not on the axis: without a time, of another clock, or far from all
        others."""
        axis = self.axis
        return self.calls - axis.calls + axis.strays

    def add(self, record: Call) -> None:
        """Count a call."""
        axis = self._axis_of(record)
        axis.calls += 1
        kind = record.kind
        self.calls += 1
        self.kinds[kind] += 1
        self.sources[record.source] += 1
        self.refused += bool(record.refused)
        if record.problem is not None:
            _count(self.problems, record.problem)
        if record.read:
            _count(self.read, (kind, record.read))
        self._add_worker(record)
        self._add_times(record, axis)
        # From here on buckets may become wider, and one that was looked up part of another.
        if record.attempts:
            self.retried += len(record.attempts) > 1
            for attempt in record.attempts:
                self._add_attempt(record, attempt, axis)
        else:
            self._add_vain_wait(record, axis)
        self._samples.add(record, kind)

    def _axis_of(self, record: Call) -> TimeAxis:
        """Return the axis of a call's clock."""
        clock = clock_of(record)
        axis = self._axes.get(clock)
        if axis is None:
            axis = TimeAxis(FINEST if record.timed else 1.0, has_strays=record.timed)
            self._axes[clock] = axis
        return axis

    def _add_worker(self, record: Call) -> None:
        worker = record.worker
        if not worker or (worker not in self.workers and len(self.workers) >= MOST_WORKERS):
            return
        first, last, calls = self.workers.get(worker, (math.inf, -math.inf, 0))
        if record.timed:
            first = min(first, record.began)
            last = max(last, record.began + (record.seconds or 0.0))
            calls += 1
        self.workers[worker] = first, last, calls

    def _add_times(self, record: Call, axis: TimeAxis) -> None:
        """Count a call where it began, where it ended, and where its outcome came about."""
        kind = record.kind
        ended = record.began + (record.seconds or 0.0)
        bucket = axis.bucket(ended)
        bucket.last = max(bucket.last, ended)
        bucket = axis.bucket(record.began)
        bucket.first = min(bucket.first, record.began)
        if record.seconds is not None and kind not in NO_ANSWER:
            self.seconds.add(record.seconds)
            bucket.seconds.add(record.seconds)
        bucket = axis.bucket(happened_at(record, ended))
        bucket.kinds[kind] += 1
        for attempt in record.attempts:
            if attempt.fault is not None:
                _count(self.faults, attempt.fault)
                _count(bucket.faults, attempt.fault)

    def _add_vain_wait(self, record: Call, axis: TimeAxis) -> None:
        """Count how long a call waited for the permit that it did not get."""
        waited: float | None = record.waited
        if not waited and record.kind == Outcome.THROTTLED.value:
            waited = record.seconds  # not every log tells the wait
        if waited:
            self.waits.add(waited)
            axis.occupy("waiting", record.began, record.began + waited)

    def _add_attempt(self, record: Call, attempt: Attempt, axis: TimeAxis) -> None:
        self.attempts += 1
        label = attempt.endpoint
        began, ended = record.span(attempt)
        counts = self.sandboxes.get(label)
        if counts is None:
            label = label if len(self.sandboxes) < MOST_NAMES else OTHERS
            counts = self.sandboxes.setdefault(label, SandboxCounts())
        outcome = attempt.kind
        bucket = axis.bucket(began if ended is None or outcome == _HUNG else ended)
        counts.outcomes[outcome] += 1
        seconds = attempt.seconds
        size = None if seconds is None else size_of(seconds)
        counts.sums.add(outcome, size)
        bucket.attempts[outcome] += 1
        bucket.sandboxes.setdefault(label, SandboxSums()).add(outcome, size)
        if seconds is not None and ended is not None:
            if outcome not in NO_ANSWER:
                counts.seconds.add(seconds)
            axis.occupy("in_flight", began, ended)
        if attempt.waited > 0:
            self.waits.add(attempt.waited)
            axis.occupy("waiting", max(began - attempt.waited, record.began), began)

    def samples(self) -> list[Call]:
        """Return some whole calls of those on the axis, in the order in which they began."""
        clock = self.clock
        axis = self.axis
        stretch = axis.stretch()
        return [
            record
            for record in self._samples.records()
            if clock_of(record) == clock and axis.number(record.began) in stretch
        ]


class _Samples:
    def __init__(self) -> None:
        self._first: list[Call] = []
        self._last: deque[Call] = deque(maxlen=KEPT)
        self._slowest: list[tuple[float, int, Call]] = []
        self._most: list[tuple[int, int, Call]] = []
        self._kinds: dict[str, list[Call]] = {}
        self._seen: Counter[str] = Counter()
        self._number = itertools.count()

    def add(self, record: Call, kind: str) -> None:
        if len(self._first) < KEPT:
            self._first.append(record)
            return
        self._last.append(record)
        number = next(self._number)
        if record.seconds is not None and (
            len(self._slowest) < KEPT or record.seconds > self._slowest[0][0]
        ):
            _keep(self._slowest, (record.seconds, number, record))
        if len(record.attempts) > 1 and (
            len(self._most) < KEPT or len(record.attempts) > self._most[0][0]
        ):
            _keep(self._most, (len(record.attempts), number, record))
        # Spread over the log: the sample is thinned out whenever it is full, and then takes only
        # every second call.
        kept = self._kinds.setdefault(kind, [])
        seen = self._seen[kind]
        self._seen[kind] += 1
        if seen % (1 << (seen // (2 * KEPT)).bit_length()) == 0:
            kept.append(record)
            if len(kept) > 2 * KEPT:
                del kept[1::2]

    def records(self) -> list[Call]:
        heaps = [record for heap in (self._slowest, self._most) for _, _, record in heap]
        kinds = [record for kept in self._kinds.values() for record in kept]
        chosen = {id(record): record for record in [*self._first, *self._last, *heaps, *kinds]}
        return sorted(chosen.values(), key=lambda record: record.began)


def _keep(heap: list[Any], item: Any) -> None:
    (heapq.heappush if len(heap) < KEPT else heapq.heappushpop)(heap, item)


def _count(counter: Counter[Any], name: str | tuple[str, str]) -> None:
    if name not in counter and len(counter) >= MOST_NAMES:
        name = OTHERS if isinstance(name, str) else (name[0], OTHERS)
    counter[name] += 1
