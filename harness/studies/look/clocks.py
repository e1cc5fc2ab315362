"""Which clock the times of a call are from, and whether the clocks of workers agree."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Literal

from sfusion_tools.record import Call

Clock = Literal["unix", "seconds", "line", "step"]
"""What times count: unix time, seconds of a run, lines of an access log, steps of a training."""
_EARLIEST_DATE = 1e8
"""Smaller times count from the beginning of a run (chosen)."""

_FEWEST_CALLS = 20
"""Calls of a worker from which on its clock is compared (chosen)."""
_LEAST_SHIFT = 2.0
"""Seconds by which a clock must be late to be suspected (chosen: more than workers take to
start)."""
_LEAST_SHIFT_SHARE = 0.1
"""The same as a share of the time that a worker typically lasts (chosen)."""
_SAME_SHIFT = 0.2
"""A worker's first call and its last one are late by the same if they differ by at most this share
(chosen)."""


def clock_of(record: Call) -> Clock:
    if record.timed:
        return "unix" if record.began > _EARLIEST_DATE else "seconds"
    return "step" if record.source == "dump" else "line"


def clocks_apart(workers: Iterable[Sequence[float]]) -> float:
    """Return by how many seconds the clocks of workers seem to differ; 0 if they do not.

    They seem to if some workers both begin and end later than the first one, by the same time: a
    worker that only started late would end with the others. Of each worker: when its first call
    began, when its last one ended, and how many it made.
    """
    spans = [(first, last) for first, last, calls in workers if calls >= _FEWEST_CALLS]
    if len(spans) < 2:
        return 0.0
    earliest_first, earliest_last = min(spans)
    typical = statistics.median(last - first for first, last in spans)
    least = max(_LEAST_SHIFT, _LEAST_SHIFT_SHARE * typical)
    widest = 0.0
    for first, last in spans:
        begins_late = first - earliest_first
        ends_late = last - earliest_last
        if begins_late < least:
            continue
        if abs(begins_late - ends_late) > max(_LEAST_SHIFT, _SAME_SHIFT * begins_late):
            return 0.0
        widest = max(widest, begins_late)
    return widest
