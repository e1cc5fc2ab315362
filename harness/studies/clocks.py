"""Do the clocks of workers differ? Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

_FEWEST, _SHORTEST_SHIFT, _SHIFT = 20, 2.0, 0.1
"""Calls of a worker, and seconds or share of its time, from which on its clock may be another one."""


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
    shifted = [one for one in late if one[0] >= least]
    same = all(abs(a - b) <= max(_SHORTEST_SHIFT, 0.2 * a) for a, b in shifted)
    return max(a for a, _ in shifted) if shifted and same else 0.0
