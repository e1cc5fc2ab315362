"""What a digest counts, and that it stays small."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.studies.look import axis, digest
from sfusion.harness.studies.look.axis import Durations, loads
from sfusion.harness.studies.look.digest import Digest
from tests.harness.studies.look.made_up import START, degrading
from tests.harness.studies.made_calls import attempt_at, call_at


def filled(records) -> Digest:
    found = Digest()
    for record in records:
        found.add(record)
    return found


def test_counts_do_not_depend_on_the_width_of_the_buckets_nor_on_the_order(monkeypatch):
    records = list(degrading())
    fine = filled(records)
    monkeypatch.setattr(axis, "MOST_BUCKETS", 16)
    random.Random(1).shuffle(records)
    coarse = filled(records)
    assert len(coarse.axis.buckets) <= 16 < len(fine.axis.buckets)
    assert coarse.kinds == fine.kinds
    assert (coarse.axis.start, coarse.axis.end) == (fine.axis.start, fine.axis.end)
    for one in (fine, coarse):
        assert sum(bucket.calls for bucket in one.axis.buckets.values()) == one.calls == 3001
        assert sum(bucket.seconds.sums.count for bucket in one.axis.buckets.values()) == 3000
        assert (
            sum(bucket.faults["busy"] for bucket in one.axis.buckets.values())
            == one.faults["busy"]
            > 0
        )
        assert sum(bucket.in_flight.changes for bucket in one.axis.buckets.values()) == 0


@pytest.mark.parametrize("most", [4, 2000])
def test_the_mean_in_flight_is_exact_whatever_the_buckets(monkeypatch, most):
    monkeypatch.setattr(axis, "MOST_BUCKETS", most)
    attempts = [
        attempt_at(100.0 + at, seconds, waited=0.5)
        for at, seconds in ((0.0, 6.0), (1.0, 2.0), (5.0, 8.0))
    ]
    found = filled(
        call_at("c", one.after - 0.5, one.seconds, "client", "ok", attempts=(one,))
        for one in attempts
    )
    stretches = found.axis.merged(3)
    for what, total in (("in_flight", 16.0), ("waiting", 1.5)):
        busy = [
            mean * (end - start)
            for (start, end, _), mean in zip(stretches, loads(stretches, what), strict=True)
        ]
        assert sum(busy) == pytest.approx(total)


def test_samples_are_few_and_hold_the_extremes():
    def calls():
        for number in range(8_000):
            seconds = 100.0 if number == 3_000 else 1.0
            outcome = "unreachable" if number == 3_500 else "ok"
            tries = 5 if number == 3_900 else 1
            yield call_at(
                f"c{number}",
                float(number),
                seconds,
                "client",
                outcome,
                attempts=(attempt_at(number, 1.0),) * tries,
            )

    chosen = {record.call for record in filled(calls()).samples()}
    assert {"c0", "c7999", "c3000", "c3500", "c3900"} <= chosen
    assert len(chosen) < 1500
    assert max(int(one[1:]) for one in chosen if int(one[1:]) < 7_000) > 6_000, (
        "they are spread over the log"
    )


def test_samples_hold_no_call_that_is_left_out_of_the_axis():
    times = {"stray": 2 * START} | {f"c{number}": START + number for number in range(500)}
    found = filled(call_at(name, at, 1.0, "client", "ok") for name, at in times.items())
    assert found.axis.strays == 1
    assert {"c0", "c499"} <= {record.call for record in found.samples()} <= times.keys() - {"stray"}


def test_names_are_bounded():
    attempts = [
        attempt_at(1.0, 1.0, f"sandbox {number}", fault=f"fault {number}") for number in range(500)
    ]
    found = filled(
        call_at(
            "c",
            1.0,
            1.0,
            "client",
            "bad_arguments",
            problem=f"problem {number}",
            attempts=(attempt,),
        )
        for number, attempt in enumerate(attempts)
    )
    for counted in (found.sandboxes, found.faults, found.problems):
        assert len(counted) <= digest.MOST_NAMES + 1
    assert (
        sum(one.sums.attempts for one in found.sandboxes.values())
        == found.faults.total()
        == found.problems.total()
        == 500
    )


def test_a_clock_that_jumps_does_no_harm():
    times = (START, 0.0, -5.0, 1e12, START - 7)
    found = filled(
        call_at("c", at, 1.0, "client", "ok", attempts=(attempt_at(at, 1.0),)) for at in times
    )
    assert found.calls == 5
    assert len(found.axis.merged(60)) <= 60


def test_percentiles_are_within_three_percent():
    times = Durations()
    chance = random.Random(2)
    values = sorted(chance.lognormvariate(-1, 1.5) for _ in range(5000))
    for value in values:
        times.add(value)
    for share in (0.01, 0.5, 0.95, 1.0):
        assert times.percentile(share) == pytest.approx(
            values[min(int(share * 5000), 4999)], rel=0.04
        )
    assert Durations().percentile(0.5) is None
    times = Durations()
    times.add(0.0)
    assert times.percentile(0.99) == 0.0
