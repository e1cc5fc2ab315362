"""Some whole calls of a log: the first, the last, the slowest, those with most attempts, and some
of each kind. Memory does not grow with the log."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator

from sfusion_tools.record import Call

KEPT = 150
"""Calls of each sample (chosen)."""


class Samples:
    """Takes calls in any order, and keeps some."""

    def __init__(self) -> None:
        self._first: list[Call] = []
        self._last: deque[Call] = deque(maxlen=KEPT)
        self._slowest = _Largest()
        self._most_attempts = _Largest()
        self._kinds: dict[str, _Spread] = {}

    def add(self, record: Call, kind: str) -> None:
        if len(self._first) < KEPT:
            self._first.append(record)
            return
        self._last.append(record)
        if record.seconds is not None:
            self._slowest.add(record.seconds, record)
        if len(record.attempts) > 1:
            self._most_attempts.add(len(record.attempts), record)
        spread = self._kinds.get(kind)
        if spread is None:
            spread = self._kinds[kind] = _Spread()
        spread.add(record)

    def records(self) -> list[Call]:
        """Return the calls that were kept, each once, in the order in which they began."""
        chosen = {id(record): record for record in self._kept()}
        return sorted(chosen.values(), key=lambda record: record.began)

    def _kept(self) -> Iterator[Call]:
        yield from self._first
        yield from self._last
        yield from self._slowest.records()
        yield from self._most_attempts.records()
        for spread in self._kinds.values():
            yield from spread.records


class _Largest:
    """The calls with the largest values."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Call]] = []
        """The number in the middle keeps calls from being compared."""
        self._number = itertools.count()

    def add(self, value: float, record: Call) -> None:
        entry = (value, next(self._number), record)
        if len(self._heap) < KEPT:
            heapq.heappush(self._heap, entry)
        elif value > self._heap[0][0]:
            heapq.heapreplace(self._heap, entry)

    def records(self) -> list[Call]:
        return [record for _, _, record in self._heap]


class _Spread:
    """Calls from all parts of a log.

    They are thinned out whenever there are too many, and from then on only every second, every
    fourth … call is taken.
    """

    def __init__(self) -> None:
        self.records: list[Call] = []
        self._seen = 0

    def add(self, record: Call) -> None:
        times_full = self._seen // (2 * KEPT)
        step = 1 << times_full.bit_length()  # doubles as often as what was seen does
        if self._seen % step == 0:
            self.records.append(record)
            if len(self.records) > 2 * KEPT:
                del self.records[1::2]
        self._seen += 1
