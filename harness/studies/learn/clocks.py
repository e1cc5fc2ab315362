"""Do the clocks of the workers agree? Each call has the time of its worker, and an outage has only one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sfusion.harness.studies.learn.attempts import has_trouble, seconds_of
from sfusion.harness.studies.look.record import LoggedCall

_FEWEST = 20
_FEWEST_TROUBLED = 5
_APART = 0.1
"""The share of the time of a worker by which clocks must differ to be noticed."""
_SHORTEST = 2.0
_SAME = 0.2
"""The share of a difference within which two ways to see it agree."""


@dataclass(frozen=True, slots=True)
class _Worker:
    name: str
    began: float
    ended: float
    trouble: tuple[float, float, float] | None
    """When its trouble began, was half over, and ended; None if it had little."""


def with_one_clock(calls: Sequence[LoggedCall]) -> tuple[Sequence[LoggedCall], str]:
    """Return calls with the times of one clock as far as that can be known, and a remark where clocks differ.

    Clocks differ if one worker began, ended and had its trouble later than another by the same time. Where nothing
    failed, workers that began and ended later may have done so, and where they had trouble at different times for
    other reasons, that may have been so: this is only remarked.
    """
    by_worker: dict[str, list[LoggedCall]] = {}
    for call in calls:
        by_worker.setdefault(call.worker, []).append(call)
    workers = [_worker(name, own) for name, own in by_worker.items() if len(own) >= _FEWEST]
    if len(workers) < 2 or len({call.source for call in calls}) > 1 or not all(call.timed for call in calls):
        return calls, ""
    first = min(workers, key=lambda one: one.began)
    late = {one.name: one.began - first.began for one in workers}
    most = max(late.values())
    least = max(_SHORTEST, _APART * statistics.median(one.ended - one.began for one in workers))
    is_shifted = most >= least and all(
        _is_same(one.ended - first.ended, late[one.name]) for one in workers if late[one.name] >= least
    )
    troubled = [one for one in workers if one.trouble is not None]
    are_apart = len(troubled) > 1 and any(_are_apart(one, other, least) for one in troubled for other in troubled)
    if is_shifted and are_apart and all(_agrees(one, troubled[0], late) for one in troubled):
        moved = [_moved(call, late.get(call.worker, 0.0)) for call in calls]
        return sorted(moved, key=lambda call: call.began), (
            f"the clocks of {len(workers)} workers differ by up to {most:.0f} s: each began, ended and had its trouble "
            "that much later than another; corrected"
        )
    if are_apart:
        return calls, (
            f"{len(troubled)} workers had their trouble at different times; if their clocks differ, what is said about "
            "when and for how long is wrong"
        )
    if is_shifted and len(troubled) < 2:
        return calls, (
            f"{len(workers)} workers began and ended up to {most:.0f} s apart; if they ran side by side, their clocks "
            "differ, and what is said about the load is wrong"
        )
    return calls, ""


def _worker(name: str, calls: Sequence[LoggedCall]) -> _Worker:
    troubled = sorted(call.began for call in calls if has_trouble(call))
    size = len(troubled)
    return _Worker(
        name,
        min(call.began for call in calls),
        max(call.began + (seconds_of(call) or 0.0) for call in calls),
        (troubled[size // 10], troubled[size // 2], troubled[-1 - size // 10]) if size >= _FEWEST_TROUBLED else None,
    )


def _are_apart(one: _Worker, other: _Worker, least: float) -> bool:
    """True if the trouble of one worker ended long before that of the other began."""
    assert one.trouble is not None
    assert other.trouble is not None
    return other.trouble[0] - one.trouble[2] >= least


def _agrees(one: _Worker, other: _Worker, late: dict[str, float]) -> bool:
    assert one.trouble is not None
    assert other.trouble is not None
    return _is_same(one.trouble[1] - other.trouble[1], late[one.name] - late[other.name])


def _is_same(one: float, other: float) -> bool:
    return abs(one - other) <= max(_SHORTEST, _SAME * abs(other))


def _moved(call: LoggedCall, by: float) -> LoggedCall:
    attempts = tuple(replace(one, began=one.began - by) for one in call.attempts)
    return replace(call, began=call.began - by, attempts=attempts)
