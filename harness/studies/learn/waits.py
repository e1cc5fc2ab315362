"""What requests wait for in a server before their programs run: a line, or a loop that starts one after the other."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from sfusion.harness.studies.learn.attempts import SHORTEST, TimedAttempt
from sfusion.harness.studies.learn.distributions import rounded
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion_tools.wording import counted


@dataclass(frozen=True, slots=True)
class WaitsFit:
    """What requests wait for in the server before their programs run."""

    kind: str
    """queue or spawn."""
    model: dict[str, Any]
    wrong: float
    """The share of all waits by which it is wrong."""

    @property
    def says(self) -> str:
        if self.kind == "spawn":
            return f"programs start one after the other, each in {self.model['spawn_cost']:g} s, and the others wait"
        return f"{self.model['workers']} programs run at a time, the others wait in the server"

    @property
    def guess(self) -> str:
        if self.kind == "spawn":
            return f"one start of {self.model['spawn_cost']:g} s after the other"
        return f"a line before {counted(self.model['workers'], 'worker')}"


_TRIED = 32
"""Numbers of workers that are tried before those around the best of them."""
_BETTER = 0.5
"""By how much less wrong than a wait that depends on nothing, or on the time only, it must be."""
_PARTS = 24


def fit_waits(
    answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], waits: Sequence[float]
) -> WaitsFit | None:
    """Predict each wait from the requests before it; None if a delay that is steady, or grows, does as well."""
    waited = sum(waits)
    if not waited:
        return None

    def wrong(guess: Callable[..., Iterator[float]], number: float) -> float:
        return sum(abs(a - b) for a, b in zip(guess(answered, everything, number), waits, strict=True)) / waited

    starts = [one.began + wait for one, wait in zip(answered, waits, strict=True)]
    running = InFlight((start, one.ended) for one, start in zip(answered, starts, strict=True))
    spans = zip(answered, starts, strict=True)
    beside = sum(running.mean(one.began, start) * (start - one.began) for one, start in spans)
    low, high = max(1, int(0.5 * beside / waited)), int(1.5 * beside / waited) + 2
    step = 1 + (high - low) // _TRIED
    _, near = min((wrong(_line_waits, number), number) for number in range(low, high, step))
    line, workers = min((wrong(_line_waits, number), number) for number in range(max(1, near - step + 1), near + step))
    ordered = sorted(zip(starts, (one.began for one in answered), strict=True))
    gaps = [b[0] - a[0] for a, b in pairwise(ordered) if b[1] <= a[0]]
    guesses = {SHORTEST, min(waits), statistics.median(waits)}
    if gaps:
        guesses |= {statistics.median(gaps), statistics.fmean(gaps)}
    spawn, cost = min((wrong(_spawn_waits, guess), guess) for guess in guesses if guess > 0)
    steady = min(_off_median(waits), _off_trend(answered, waits)) / waited
    best = min(line, spawn)
    if best > _BETTER * steady and best > 0.02:
        return None
    if spawn <= line:
        return WaitsFit("spawn", {"spawn_cost": rounded(cost)}, spawn)
    return WaitsFit("queue", {"kind": "queue", "workers": workers}, line)


def _off_median(waits: Sequence[float]) -> float:
    middle = statistics.median(waits)
    return sum(abs(one - middle) for one in waits)


def _off_trend(answered: Sequence[TimedAttempt], waits: Sequence[float]) -> float:
    order = sorted(range(len(waits)), key=lambda place: answered[place].began)
    size = len(order)
    parts = (order[size * k // _PARTS : size * (k + 1) // _PARTS] for k in range(_PARTS))
    return sum(_off_median([waits[place] for place in part]) for part in parts if part)


def _line_waits(answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], workers: int) -> Iterator[float]:
    """How long each request waits if it starts as soon as fewer than ``workers`` before it have not ended."""
    latest: list[float] = []
    following = iter(answered)
    one = next(following, None)
    for other in everything:
        if other is one:
            yield max(0.0, latest[0] - other.began) if len(latest) == workers else 0.0
            one = next(following, None)
        if len(latest) < workers:
            heapq.heappush(latest, other.ended)
        else:
            heapq.heappushpop(latest, other.ended)


def _spawn_waits(answered: Sequence[TimedAttempt], everything: Sequence[TimedAttempt], cost: float) -> Iterator[float]:
    """How long each request waits if programs are started one after the other, which takes ``cost`` seconds each."""
    free = -math.inf
    following = iter(answered)
    one = next(following, None)
    for other in everything:
        free = max(free, other.began) + cost
        if other is one:
            yield free - other.began
            one = next(following, None)
