"""Do requests wait in the server until one of its workers is free?"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Iterator, Sequence

from sfusion.harness.studies.learn.attempts import LoggedRequest
from sfusion.harness.studies.learn.in_flight import InFlight
from sfusion.harness.studies.learn.slowness import SHORTEST, Slowness

_SERIOUS = 0.2
"""The share of the time of all answers from which on waiting matters."""
_TRIED = 32
"""Numbers of workers that are tried before those around the best of them."""
_WRONG = 0.2
"""The share of all waits by which those of a line may be wrong."""
_BETTER = 0.35
"""The same, of what is wrong if each is expected to be as long as the median."""


def find_waiting_line(answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest]) -> Slowness | None:
    """Predict when each program started from the ends of the requests before it; None if that is not when it did.

    This needs the execution times that a sandbox reports: what a request took beside that, it waited.
    """
    ran = [seconds for one in answered if (seconds := one.record.run_seconds) is not None]
    if len(ran) < len(answered):
        return None
    waits = [max(0.0, one.seconds - seconds) for one, seconds in zip(answered, ran, strict=True)]
    waited = sum(waits)
    lost = waited / max(sum(one.seconds for one in answered), SHORTEST)
    if lost < _SERIOUS:
        return None
    running = InFlight((one.began + wait, one.ended) for one, wait in zip(answered, waits, strict=True))
    beside = sum(running.mean(one.began, one.began + wait) * wait for one, wait in zip(answered, waits, strict=True))
    busy = beside / waited

    def error(workers: int) -> float:
        return sum(abs(a - b) for a, b in zip(_line_waits(answered, everything, workers), waits, strict=True))

    low, high = max(1, int(0.5 * busy)), int(1.5 * busy) + 2
    step = 1 + (high - low) // _TRIED
    _, near = min((error(number), number) for number in range(low, high, step))
    wrong, workers = min((error(number), number) for number in range(max(1, near - step + 1), near + step))
    middle = statistics.median(waits)
    if wrong > _WRONG * waited or wrong > _BETTER * sum(abs(one - middle) for one in waits):
        return None
    return Slowness(
        "queue",
        tuple(max(one, SHORTEST) for one in ran),
        tuple(range(len(answered))),
        model={"kind": "queue", "workers": workers},
        says=f"{workers} programs run at a time, the others wait in the server",
        evidence=f"{lost:.0%} of the time of requests is before their programs ran; a line before {workers} workers "
        f"predicts these waits with an error of {wrong / waited:.0%}",
        lost=lost,
    )


def _line_waits(
    answered: Sequence[LoggedRequest], everything: Sequence[LoggedRequest], workers: int
) -> Iterator[float]:
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
