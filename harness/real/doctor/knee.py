"""The knee of throughput, and the server model that behaves like the measurements. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from sfusion_tools._version import __version__

ENOUGH = 0.85
"""Share of the best throughput that counts as reaching it: measurements of one second are no more
precise."""
COLLAPSED = 0.7
"""Below this share of the best throughput, load makes the sandbox slower (chosen)."""
TOLERATED = 0.02
"""Share of requests that may fail while a level still counts as working (chosen)."""

Shape = Literal["plateau", "collapse", "throttled", "failing", "rising"]


@dataclass(frozen=True, slots=True)
class Point:
    """The measurement at one level of concurrency."""

    concurrency: int
    throughput: float
    """Successful programs per second."""
    latency: float
    """Their median duration in seconds."""
    requests: int = 0
    throttled: int = 0
    """Answered 429 or 503."""
    failed: int = 0
    """Failed in any other way."""

    @property
    def works(self) -> bool:
        return self.throughput > 0 and self.throttled + self.failed <= TOLERATED * self.requests


@dataclass(frozen=True, slots=True)
class Knee:
    rate_limit: int
    """The recommended setting: the lowest concurrency that reaches nearly the best throughput."""
    throughput: float
    """The best throughput, in programs per second."""
    shape: Shape
    """What happens above the knee: no gain, a loss, refusals, failures; ``rising`` if the end was
    not reached."""


def find_knee(points: Sequence[Point]) -> Knee | None:
    """Return the knee, or None if not even the lowest level worked."""
    levels = sorted(points, key=lambda point: point.concurrency)
    working: list[Point] = []
    for point in levels:
        if not point.works:
            break
        working.append(point)
    if not working:
        return None
    best = max(point.throughput for point in working)
    place = next(place for place, point in enumerate(working) if point.throughput >= ENOUGH * best)
    knee = working[place]
    shape = _shape(levels, working, knee, best)
    if shape == "rising" or place == 0:
        return Knee(knee.concurrency, best, shape)
    # Levels double, so the true value lies somewhere above the previous level. Little's law says
    # where: the number in flight is throughput times the duration of one call, which is the
    # previous level's as long as nothing queues.
    before = working[place - 1]
    needed = math.ceil(round(best * before.latency, 3))
    return Knee(min(knee.concurrency, max(before.concurrency + 1, needed)), best, shape)


def _shape(levels: list[Point], working: list[Point], knee: Point, best: float) -> Shape:
    if len(working) < len(levels):
        beyond = levels[len(working)]
        return "throttled" if beyond.throttled >= beyond.failed else "failing"
    if levels[-1].throughput < COLLAPSED * best:
        return "collapse"
    return "rising" if knee is levels[-1] and _still_rises(levels) else "plateau"


def _still_rises(levels: list[Point]) -> bool:
    """Did the last level gain at least half of what unlimited scaling would have gained?"""
    if len(levels) < 2:
        return True
    before, last = levels[-2:]
    return (
        last.throughput / before.throughput - 1 >= (last.concurrency / before.concurrency - 1) / 2
    )


SERIAL = 0.6, 1.3
"""Starting programs in turn is the cause if the time beyond their sleep, times the best throughput,
is in here.

More than that is the way to the server, and then the number of workers explains the throughput as
well.
"""


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A ``sandbox.model`` and where its numbers come from."""

    model: dict[str, Any]
    reasons: tuple[str, ...]


def fit_model(
    points: Sequence[Point],
    *,
    sleeps: float | None,
    status: int | None = None,
    retry_after: float | None = None,
) -> FittedModel | None:
    """Return the model for the points of a sweep; None if not even one program at a time worked.

    ``sleeps`` is how long its programs slept; None if they computed. Refused requests got this
    ``status``.
    """
    knee = find_knee(points)
    if knee is None:
        return None
    levels = sorted(points, key=lambda point: point.concurrency)
    alone = levels[0]
    best = knee.throughput
    took = (
        f"alone, a program takes {alone.latency:.3g} s; at best {best:.3g} programs end per second"
    )
    busy = best * alone.latency
    if knee.shape == "rising":
        text = (
            f"throughput still rises at {levels[-1].concurrency} programs at a time, so "
            "no limit was found"
        )
        return FittedModel({"kind": "unbounded"}, (took, text))
    if knee.shape == "throttled" and status is not None:
        return _refusing(
            levels=levels, busy=busy, status=status, retry_after=retry_after, took=took
        )
    beyond = {
        "collapse": (
            "above it throughput falls, which no model does: do not trust a sweep far above it"
        ),
        "failing": "above it requests fail, which no model does: do not trust a sweep far above it",
    }.get(knee.shape, "more at a time only wait")
    if sleeps is None:
        text = (
            f"{best:.3g} per second times {alone.latency:.3g} s: as many cores as work "
            f"at once; {beyond}"
        )
        return FittedModel({"kind": "unbounded", "cores": _round(busy)}, (took, text))
    overhead = alone.latency - sleeps
    if SERIAL[0] <= best * overhead <= SERIAL[1]:
        text = (
            "programs that sleep need no core, so the time between two starts is the "
            f"limit: 1/{best:.3g} s; {beyond}"
        )
        return FittedModel({"kind": "unbounded", "spawn_cost": _round(1 / best)}, (took, text))
    text = (
        f"programs that sleep need no core, so {best:.3g} per second times "
        f"{alone.latency:.3g} s are workers; {beyond}"
    )
    return FittedModel({"kind": "queue", "workers": _workers(busy)}, (took, text))


def _refusing(
    levels: Sequence[Point], busy: float, status: int, retry_after: float | None, took: str
) -> FittedModel:
    place = next(place for place, point in enumerate(levels) if not point.works)
    refused = levels[place]
    before = levels[place - 1]
    share = refused.throttled / refused.requests if refused.requests else 0.0
    admitted = max(
        before.concurrency, min(refused.concurrency - 1, round(refused.concurrency * (1 - share)))
    )
    text = (
        f"at {refused.concurrency} programs at a time {share:.0%} of the requests get {status}, at "
        f"{before.concurrency} none: about {admitted} are admitted"
    )
    wait = {} if retry_after is None else {"retry_after": retry_after}
    if status == 429:
        return FittedModel({"kind": "quota", "in_flight": admitted, **wait}, (took, text))
    workers = min(admitted, _workers(busy))
    model = {
        "kind": "queue",
        "workers": workers,
        "waiting": admitted - workers,
        "status": status,
        **wait,
    }
    return FittedModel(model, (took, text, f"{busy:.3g} of them work at once, the others wait"))


def model_file(measured: Mapping[str, Any], label: str) -> str:
    """Return the model that was measured as a commented part of a scenario file, for ``sfusion
    sweep --model``."""
    found = measured["server_model"]
    points = [Point(**point) for point in measured["sweep"]]
    lines = [
        f"# What sfusion doctor {__version__} measured at {label}, with {found['programs']}.",
        (
            "# Use it with `sfusion sweep SCENARIO --model THIS_FILE`, or begin a scenario "
            "with `extends: THIS_FILE`."
        ),
        "#",
        "# at a time  per second  median duration  refused",
        *(
            (
                f"# {point.concurrency:>9}  {point.throughput:>10.1f}  {point.latency:>13.3f} "
                f"s  {point.throttled:>7}"
            )
            for point in points
        ),
        "#",
        *(f"# {reason[:1].upper()}{reason[1:]}." for reason in found["reasons"]),
    ]
    part: dict[str, Any] = {"sandbox": {"model": found["model"]}}
    part["observed"] = _observed(found, points)
    if found.get("own_programs") and found.get("alone"):
        part["load"] = {"program": {"seconds": {"choice": found["alone"]}}}
    body = yaml.safe_dump(part, sort_keys=False)
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n" + body


_AS_MUCH = 0.92
"""The share of the best throughput that is as much for a sweep (chosen, as `sfusion learn` does):
more than ``ENOUGH``, because a simulation that is too fast below the knee recommends fewer."""
_NO_END: tuple[Shape, ...] = ("rising", "collapse", "failing")
"""Shapes beyond whose last level the model says nothing."""


def _observed(found: Mapping[str, Any], points: Sequence[Point]) -> dict[str, Any]:
    """Return how far the measurement reaches, and what it leaves open.

    The model has one knee, a real server gets slower little by little: fewer at a time than were
    seen to do as much as the best are not known to be enough.
    """
    working = [point for point in points if point.works]
    best = max((point.throughput for point in working), default=0.0)
    least = 1
    if found.get("own_programs"):
        enough = (point for point in working if point.throughput >= _AS_MUCH * best)
        least = min((point.concurrency for point in enough), default=1)
    highest = max(point.concurrency for point in points)
    most = highest if found.get("shape") in _NO_END else None
    observed: dict[str, Any] = {"rate_limit": [least, most]}
    if not found.get("own_programs"):
        observed["unknown"] = (
            f"it was measured with {found['programs']}, so how your programs share cores is not "
            "in it; measure with --program or --log"
        )
    return observed


def _workers(busy: float) -> int:
    """The next whole number: a short measurement never finds more than there are."""
    return max(1, math.ceil(busy - 0.05))


def _round(value: float) -> float:
    return float(f"{value:.3g}")
