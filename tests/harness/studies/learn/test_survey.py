"""The first pass over a log is bounded, and finds the part with most trouble."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from sfusion.harness.studies.learn.survey import Survey, sample
from tests.harness.studies.learn.records import call, survey


def test_the_stretch_with_most_trouble_is_chosen() -> None:
    calls = [call(number, 1e9 + number) for number in range(5000)]
    calls[3000:3100] = [
        call(n, 1e9 + n, outcome="unreachable", status=None) for n in range(3000, 3100)
    ]
    window = survey(calls).window(500)
    assert window is not None
    assert (window.of, window.troubled, window.troubled_of) == (5000, 100, 100)
    chosen = sample(calls, window, 500)
    assert 400 <= len(chosen) <= 500
    numbers = [int(one.call[1:]) for one in chosen]
    assert numbers[0] < 3000 < 3100 < numbers[-1], "there is a before and an after"


def test_calls_that_are_only_slow_are_trouble_too() -> None:
    draw = random.Random(1)
    calls = [
        call(n, 1e9 + n, draw.lognormvariate(-1, 0.4) * (10 if 4000 <= n < 4200 else 1))
        for n in range(5000)
    ]
    window = survey(calls).window(500)
    assert window is not None
    assert window.start < 1e9 + 4000 < 1e9 + 4200 < window.end
    assert window.slower > 2


@pytest.mark.parametrize("facts", [{"seconds": 2.0}, {"outcome": "unreachable", "status": None}])
@pytest.mark.parametrize(("first", "last"), [(3000, 5000), (0, 2000), (1500, 4000)])
def test_trouble_longer_than_a_stretch_is_seen_where_it_begins_or_ends(
    facts: dict[str, Any], first: int, last: int
) -> None:
    calls = [call(n, 1e9 + n, **(facts if first <= n < last else {})) for n in range(5000)]
    window = survey(calls).window(500)
    assert window is not None
    change = first or last
    assert window.start + 50 < 1e9 + change < window.end - 50


def test_memory_does_not_grow_with_the_log() -> None:
    made = Survey()
    for number in range(10_000):
        made.add(call(number, 1e9 + 7 * number))
    assert len(made._buckets) <= 4096
    window = made.window(1000)
    assert window is not None
    assert 0 < window.calls <= 1000


def test_a_clock_that_jumped_does_not_stretch_the_window() -> None:
    calls = [call(number, 1e9 + number) for number in range(300)] + [
        call(999, 5.0),
        call(1000, 4e9),
    ]
    window = survey(calls).window(5000)
    assert window is not None
    assert window.calls == 300
    assert window.end - window.start < 400


def test_a_bucket_that_is_too_full_keeps_the_first_calls_of_all_workers() -> None:
    """Workers write a file each, and files are read one after the other."""
    files = [
        [replace(call(n, 1e9 + n / 100), worker=f"w{worker}") for n in range(32)]
        for worker in range(8)
    ]
    calls = [each for file in files for each in file]
    window = survey(calls).window(100)
    assert window is not None
    chosen = sample(calls, window, 100)
    assert len(chosen) == 100
    assert {each.worker for each in chosen} == {f"w{worker}" for worker in range(8)}


def test_an_empty_log_has_no_window() -> None:
    assert survey([]).window(10) is None
