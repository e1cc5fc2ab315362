"""Workers whose clocks differ tell one outage as several: that is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion_tools.record import Call
from tests.harness.studies.learn.records import call


def three_workers(
    late: tuple[float, float, float], outage: tuple[float, float] = (0, 0)
) -> list[Call]:
    """Each worker makes a call every 0.3 s for 60 s; the clock of each is late by so many
    seconds."""
    calls = []
    for n in range(600):
        at, worker = 0.1 * n, n % 3
        facts = (
            {"outcome": "unreachable", "status": None, "seconds": 0.002}
            if outage[0] <= at < outage[1]
            else {}
        )
        calls.append(replace(call(n, 1e9 + at + late[worker], **facts), worker=f"w{worker}"))  # type: ignore[arg-type]
    return calls


def learned(calls: list[Call]) -> Learned:
    return learn(sorted(calls, key=lambda one: one.began))


@pytest.mark.parametrize("outage", [(0, 0), (30, 36)])
def test_workers_whose_clocks_may_differ_are_remarked(outage: tuple[float, float]) -> None:
    (remark,) = learned(three_workers((0, 20, 40), outage)).remarks
    assert "workers began and ended up to 40 s apart" in remark
    assert "if they ran side by side, their clocks differ" in remark


def test_workers_with_the_same_clock_are_not_remarked() -> None:
    assert learned(three_workers((0, 0, 0), (30, 36))).remarks == ()
    assert learned(three_workers((0, 0.2, 0.1), (30, 36))).remarks == ()
