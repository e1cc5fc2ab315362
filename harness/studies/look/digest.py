"""What a log says in all: counts over time, sandboxes, faults, and a few whole calls. Memory
does not grow with it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from sfusion_tools.outcome import CAUSABLE, Outcome
from sfusion_tools.record import Attempt, Call

from ...core.dumps.text_clusters import ComparedPart, TextClusters, parts_of
from .axis import FINEST, Durations, SandboxSums, TimeAxis, size_of
from .clocks import Clock, clock_of
from .samples import Samples

MOST_NAMES = 50
"""Sandboxes, faults and problems that are counted by name; the rest is counted together
(chosen)."""
MOST_WORKERS = 100_000
"""Workers whose clocks are compared (chosen: bounds the memory)."""
_SHOWN_CHARACTERS = 120
"""Characters of a dump's text that are shown (chosen: a line of a table)."""
OTHERS = "(others)"
"""The name under which the rest is counted."""
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


_SEVERAL = 3
"""Attempts that must all have failed before a call itself is suspected (as in the tool)."""


def _lost_every_attempt(record: Call) -> bool:
    """Did several attempts of a call fail, and all of them in ways that a program can cause? A
    refusal (429) says nothing about the program."""
    outcomes = [attempt.outcome for attempt in record.attempts]
    started = [outcome for outcome in outcomes if outcome is not Outcome.THROTTLED]
    return len(started) >= _SEVERAL and CAUSABLE.issuperset(started)


def _loads_told(record: Call) -> set[str]:
    """Return of which loads a call tells: in flight if a duration says until when, waiting if a
    client wrote it, because servers do not see who waits for a permit."""
    if not record.timed:
        return set()
    is_of_client = record.source == "client"
    told = {"waiting"} if is_of_client else set()
    sent_nothing = is_of_client and not record.attempts
    if sent_nothing or any(attempt.seconds is not None for attempt in record.attempts):
        told.add("in_flight")
    return told


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
        """What the model read of failures: outcome and text. Of a dump's texts that differ only in
        numbers, the first one."""
        self._first_wording: dict[str, str] = {}
        self.texts = TextClusters()
        """What a dump's tools answered that is taken for output only because nobody knows it."""
        self.texts_by_step: Counter[int] = Counter()
        self.scores_by_step: defaultdict[int, float] = defaultdict(float)
        """The sum of the scores of their samples."""
        self.vague = TextClusters()
        """What a dump's tools answered that stands for any failure and for none."""
        self.losing: list[float] = []
        """When calls began that lost every one of several attempts."""
        self.sandboxes: dict[str, SandboxCounts] = {}
        self.workers: dict[str, tuple[float, float, int]] = {}
        """When the first call of each began, when its last one ended, and how many it made."""
        self.seconds = Durations()
        self.waits = Durations()
        self.retried = 0
        self.refused = 0
        """Calls that the guard did not let through."""
        self._samples = Samples()

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
        if record.source == "dump":
            self._add_text(record)
        elif record.read:
            _count(self.read, (kind, record.read))
        if _lost_every_attempt(record) and len(self.losing) < MOST_WORKERS:
            self.losing.append(record.began)
        self._add_worker(record)
        self._add_times(record, axis)
        axis.tells |= _loads_told(record)
        # From here on buckets may become wider: one that was looked up before may be merged away.
        if record.attempts:
            self.retried += len(record.attempts) > 1
            for attempt in record.attempts:
                self._add_attempt(record, attempt, axis)
        else:
            self._add_vain_wait(record, axis)
        self._samples.add(record, kind)

    def _add_text(self, record: Call) -> None:
        """Count what a dump's tool answered."""
        step = int(record.began)
        self.texts_by_step[step] += 1
        self.scores_by_step[step] += record.score
        if record.outcome is Outcome.OK:
            self.texts.add(record.read, step, record.group, record.score)
        elif record.outcome is None and record.read:
            self.vague.add(record.read, step, record.group, record.score)
        elif record.outcome is not None and record.outcome.is_infrastructure and record.read:
            _count(self.read, (record.kind, self._wording(record.read)))

    def _wording(self, text: str) -> str:
        """Return the first text that begins as this one, without its numbers."""
        key = parts_of(text).get(ComparedPart.BEGINNING, text)
        if key not in self._first_wording and len(self._first_wording) >= MOST_NAMES:
            return OTHERS
        return self._first_wording.setdefault(key, " ".join(text.split())[:_SHOWN_CHARACTERS])

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
        took = None if kind in NO_ANSWER else record.seconds
        if took is not None:
            self.seconds.add(took)
            bucket.seconds.add(took)
        bucket = axis.bucket(happened_at(record, ended))
        bucket.kinds[kind] += 1
        if took is not None:
            bucket.counted_seconds.add(took)
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
        began, ended = record.span(attempt)
        label = attempt.endpoint
        if label not in self.sandboxes and len(self.sandboxes) >= MOST_NAMES:
            label = OTHERS
        counts = self.sandboxes.get(label)
        if counts is None:
            counts = self.sandboxes[label] = SandboxCounts()
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


def _count(counter: Counter[Any], name: str | tuple[str, str]) -> None:
    if name not in counter and len(counter) >= MOST_NAMES:
        name = OTHERS if isinstance(name, str) else (name[0], OTHERS)
    counter[name] += 1
