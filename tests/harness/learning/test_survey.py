"""The first pass over a log is bounded, and finds the part with most trouble."""

from __future__ import annotations

from sfusion.harness.learning.survey import Survey, sample, survey
from tests.harness.learning.records import call


def test_the_stretch_with_most_trouble_is_chosen() -> None:
    calls = [call(number, 1e9 + number) for number in range(5000)]
    calls[3000:3100] = [call(n, 1e9 + n, outcome="unreachable", status=None) for n in range(3000, 3100)]
    window = survey(calls).window(500)
    assert window is not None
    assert (window.of, window.troubled, window.troubled_of) == (5000, 100, 100)
    chosen = sample(calls, window, 500)
    assert 400 <= len(chosen) <= 500
    numbers = [int(one.call[1:]) for one in chosen]
    assert numbers[0] < 3000 < 3100 < numbers[-1], "there is a before and an after"


def test_memory_does_not_grow_with_the_log() -> None:
    made = Survey()
    for number in range(10_000):
        made.add(call(number, 1e9 + 7 * number))
    assert len(made._buckets) <= 4096
    window = made.window(1000)
    assert window is not None
    assert 0 < window.calls <= 1000


def test_a_clock_that_jumped_does_not_stretch_the_window() -> None:
    calls = [call(number, 1e9 + number) for number in range(300)] + [call(999, 5.0), call(1000, 4e9)]
    window = survey(calls).window(5000)
    assert window is not None
    assert window.calls == 300
    assert window.end - window.start < 400


def test_an_empty_log_has_no_window() -> None:
    assert survey([]).window(10) is None
