"""When it got worse: changes are found where they are, and only there."""

from __future__ import annotations

import math
import random

import pytest

from sfusion.harness.studies.look.axis import LogSums
from sfusion.harness.studies.look.changes import changed_durations, changed_shares


def counts(*parts: tuple[int, float], seed: int = 1, calls: int = 50) -> list[tuple[int, int]]:
    chance = random.Random(seed)
    return [
        (calls, sum(chance.random() < share for _ in range(calls)))
        for length, share in parts
        for _ in range(length)
    ]


def sums(*parts: tuple[int, float], seed: int = 1, calls: int = 50) -> list[LogSums]:
    chance = random.Random(seed)
    rows = []
    for length, typical in parts:
        for _ in range(length):
            logs = [math.log(typical) + chance.gauss(0, 0.5) for _ in range(calls)]
            rows.append(LogSums(calls, sum(logs), sum(one * one for one in logs)))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_a_worse_share_is_found_where_it_began(seed):
    (change,) = changed_shares(counts((60, 0.02), (40, 0.2), seed=seed))
    assert abs(change.place - 60) <= 1
    assert change.before == pytest.approx(0.02, abs=0.01)
    assert change.after == pytest.approx(0.2, abs=0.03)


def test_an_outage_has_a_beginning_and_an_end():
    worse, better = changed_shares(counts((50, 0.01), (10, 0.9), (60, 0.01)))
    assert (worse.place, better.place) == (50, 60)
    assert worse.after == better.before > 0.8


@pytest.mark.parametrize("seed", range(8))
def test_chance_is_not_a_change(seed):
    assert changed_shares(counts((200, 0.1), seed=seed)) == []
    assert changed_durations(sums((200, 1.0), seed=seed)) == []


def test_small_changes_are_not_told():
    assert changed_shares(counts((100, 0.001), (100, 0.012), calls=2000)) == []
    assert changed_durations(sums((100, 1.0), (100, 1.1), calls=500)) == []


def test_longer_calls_are_found():
    (change,) = changed_durations(sums((30, 0.5), (70, 2.0)))
    assert change.place == 30
    assert (change.before, change.after) == (
        pytest.approx(0.5, rel=0.1),
        pytest.approx(2.0, rel=0.1),
    )


def test_a_change_within_a_stretch_is_one_change():
    rows = sums((30, 0.5), (1, 1.0), (69, 4.0))
    (change,) = changed_durations(rows)
    assert (change.place, change.after) == (30, pytest.approx(4.0, rel=0.1))


@pytest.mark.parametrize("rows", [[], [(0, 0)], [(5, 5)], [(0, 0)] * 50, [(10, 10)] * 50])
def test_nothing_to_compare_is_no_change(rows):
    assert changed_shares(rows) == []
    assert changed_durations([LogSums(a, float(b), 0.0) for a, b in rows]) == []
