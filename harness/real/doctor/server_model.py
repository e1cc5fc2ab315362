"""The server model that behaves like the measurements of a sweep, for scenarios and ``sfusion sweep``. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from sfusion.harness.real.doctor.knee import Point, find_knee

SERIAL = 0.6, 1.3
"""Starting programs in turn is the cause if the time beyond their sleep, times the best throughput, is in here.

More than that is the way to the server, and then the number of workers explains the throughput as well.
"""


@dataclass(frozen=True, slots=True)
class Refusals:
    """How requests were turned away."""

    status: int
    retry_after: str | None = None

    @property
    def seconds(self) -> float | None:
        try:
            return float(self.retry_after) if self.retry_after is not None else None
        except ValueError:  # a date
            return None


@dataclass(frozen=True, slots=True)
class FittedModel:
    """A ``sandbox.model`` and where its numbers come from."""

    model: dict[str, Any]
    reasons: tuple[str, ...]


def fit_model(points: Sequence[Point], *, sleeps: float | None, refusal: Refusals | None = None) -> FittedModel | None:
    """Return the model for the points of a sweep; None if not even one program at a time worked.

    ``sleeps`` is how long its programs slept; None if they computed.
    """
    knee = find_knee(points)
    if knee is None:
        return None
    levels = sorted(points, key=lambda point: point.concurrency)
    alone, best = levels[0], knee.throughput
    took = f"alone, a program takes {alone.latency:.3g} s; at best {best:.3g} programs end per second"
    busy = best * alone.latency
    if knee.shape == "rising":
        text = f"throughput still rises at {levels[-1].concurrency} programs at a time, so no limit was found"
        return FittedModel({"kind": "unbounded"}, (took, text))
    if knee.shape == "throttled" and refusal is not None:
        return _refusing(levels, busy, refusal, took)
    beyond = {
        "collapse": "above it throughput falls, which no model does: do not trust a sweep far above it",
        "failing": "above it requests fail, which no model does: do not trust a sweep far above it",
    }.get(knee.shape, "more at a time only wait")
    if sleeps is None:
        text = f"{best:.3g} per second times {alone.latency:.3g} s: as many cores as work at once; {beyond}"
        return FittedModel({"kind": "unbounded", "cores": _round(busy)}, (took, text))
    overhead = alone.latency - sleeps
    if SERIAL[0] <= best * overhead <= SERIAL[1]:
        text = (
            f"programs that sleep need no core, so the time between two starts is the limit: 1/{best:.3g} s; {beyond}"
        )
        return FittedModel({"kind": "unbounded", "spawn_cost": _round(1 / best)}, (took, text))
    text = (
        f"programs that sleep need no core, so {best:.3g} per second times {alone.latency:.3g} s are workers; {beyond}"
    )
    return FittedModel({"kind": "queue", "workers": _workers(busy)}, (took, text))


def _refusing(levels: Sequence[Point], busy: float, refusal: Refusals, took: str) -> FittedModel:
    place = next(place for place, point in enumerate(levels) if not point.works)
    refused, before = levels[place], levels[place - 1]
    share = refused.throttled / refused.requests if refused.requests else 0.0
    admitted = max(before.concurrency, min(refused.concurrency - 1, round(refused.concurrency * (1 - share))))
    text = (
        f"at {refused.concurrency} programs at a time {share:.0%} of the requests get {refusal.status}, at "
        f"{before.concurrency} none: about {admitted} are admitted"
    )
    wait = {} if refusal.seconds is None else {"retry_after": refusal.seconds}
    if refusal.status == 429:
        return FittedModel({"kind": "quota", "in_flight": admitted, **wait}, (took, text))
    workers = min(admitted, _workers(busy))
    model = {"kind": "queue", "workers": workers, "waiting": admitted - workers, "status": refusal.status, **wait}
    return FittedModel(model, (took, text, f"{busy:.3g} of them work at once, the others wait"))


def model_file(fitted: FittedModel, points: Sequence[Point], *, label: str, programs: str, version: str) -> str:
    """Return the model as a commented part of a scenario file, for ``extends`` and ``sfusion sweep --model``."""
    lines = [
        f"# What sfusion doctor {version} measured at {label}, with {programs}.",
        "# Use it with `sfusion sweep SCENARIO --model THIS_FILE`, or begin a scenario with `extends: THIS_FILE`.",
        "#",
        "# at a time  per second  median duration  refused",
        *(
            f"# {point.concurrency:>9}  {point.throughput:>10.1f}  {point.latency:>13.3f} s  {point.throttled:>7}"
            for point in points
        ),
        "#",
        *(f"# {reason[:1].upper()}{reason[1:]}." for reason in fitted.reasons),
    ]
    body = yaml.safe_dump({"sandbox": {"model": fitted.model}}, sort_keys=False)
    return "\n".join(line.replace("\n", " ") for line in lines) + "\n" + body


def _workers(busy: float) -> int:
    """The next whole number: a short measurement never finds more than there are."""
    return max(1, math.ceil(busy - 0.05))


def _round(value: float) -> float:
    return float(f"{value:.3g}")
