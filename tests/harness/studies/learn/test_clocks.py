"""Workers whose clocks differ tell one outage as several; that is corrected where it can be known, and said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sfusion.harness.studies.learn.learned import Learned, learn
from sfusion.harness.studies.look import Call
from tests.harness.studies.learn.records import call


def three_workers(late: tuple[float, float, float], outage: tuple[float, float] = (0, 0)) -> list[Call]:
    """Each worker makes a call every 0.3 s for 60 s; the clock of each is late by so many seconds."""
    calls = []
    for n in range(600):
        at, worker = 0.1 * n, n % 3
        facts = {"outcome": "unreachable", "status": None, "seconds": 0.002} if outage[0] <= at < outage[1] else {}
        calls.append(replace(call(n, 1e9 + at + late[worker], **facts), worker=f"w{worker}"))  # type: ignore[arg-type]
    return calls


def learned(calls: list[Call]) -> Learned:
    return learn(sorted(calls, key=lambda one: one.began))


def test_an_outage_that_workers_with_different_clocks_saw_is_one_outage() -> None:
    found = learned(three_workers((0, 20, 40), (30, 36)))
    assert [one.kind for one in found.causes] == ["crash"]
    assert found.span == pytest.approx(60, abs=1)
    (remark,) = found.remarks
    assert remark == (
        "the clocks of 3 workers differ by up to 40 s: each began, ended and had its trouble that much later than "
        "another; corrected"
    )


def test_workers_whose_clocks_may_differ_are_remarked_where_nothing_shows_it() -> None:
    (remark,) = learned(three_workers((0, 20, 40))).remarks
    assert "3 workers began and ended up to 40 s apart" in remark
    assert "if they ran side by side, their clocks differ" in remark


def test_workers_that_began_one_after_the_other_and_saw_the_same_outage_have_good_clocks() -> None:
    calls = [
        replace(one, worker=f"w{shift}", began=one.began)
        for shift in (0, 20, 40)
        for one in three_workers((0, 0, 0))
        if shift <= one.began - 1e9 <= shift + 20
    ]
    down = [
        call(n, one.began, 0.002, outcome="unreachable", status=None) if 15 <= one.began - 1e9 < 26 else one
        for n, one in enumerate(calls)
    ]
    down = [replace(one, worker=before.worker) for one, before in zip(down, calls, strict=True)]
    assert not any("corrected" in one for one in learned(down).remarks)


def test_workers_with_the_same_clock_are_not_remarked() -> None:
    assert learned(three_workers((0, 0, 0), (30, 36))).remarks == ()
    assert learned(three_workers((0, 0.2, 0.1), (30, 36))).remarks == ()


def test_trouble_at_another_time_for_each_worker_is_remarked() -> None:
    calls = three_workers((0, 0, 0))
    for n, one in enumerate(calls):
        if n // 200 == n % 3 and 20 < n % 200 < 120:
            calls[n] = replace(call(n, one.began, 0.002, outcome="unreachable", status=None), worker=one.worker)
    (remark,) = learned(calls).remarks
    assert "had their trouble at different times" in remark
