"""Which value is recommended, and what is said about the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sfusion.harness.core.figures import RunFigures
from sfusion.harness.studies.sweep.grid import GridSample, Measured
from sfusion.harness.studies.sweep.recommendation import (
    Recommendation,
    recommend,
    recommend_for_all,
)

VALUES = (4, 8, 12, 16, 24, 32, 48)


def measured(
    rate: float, *, refused: int = 0, ok: int = 100, broken: Sequence[str] = (), error: str = ""
) -> Measured:
    outcomes = {"ok": ok} | ({"program_timeout": 100 - ok} if ok < 100 else {})
    failures = {"429": refused} if refused else {}
    figures = RunFigures(100, outcomes, 10.0, rate, attempts=100 + refused, failures=failures)
    return Measured.of([GridSample(figures, tuple(broken), error)])


def of(*rates: float, **more: Any) -> Recommendation:
    return recommend(VALUES[: len(rates)], [measured(rate, **more) for rate in rates])


def test_the_smallest_value_near_the_best_is_recommended_with_what_others_lose() -> None:
    curve = [
        *map(measured, (40, 78, 97.5, 100, 99)),
        measured(90, refused=20),
        measured(60, refused=100),
    ]
    found = recommend(VALUES, curve)
    assert found.value == 16
    assert found.sensitivity == (
        "12 to 24 lose under 3%; 8 loses 22%; 32 loses 10% (the sandbox gives 429 to 17% "
        "of the attempts)"
    )
    assert found.knee == 12


def test_refusals_further_up_are_mentioned() -> None:
    curve = [*map(measured, (40, 80, 100, 100, 80)), measured(80, refused=20)]
    assert "from 32 on the sandbox gives 429" in recommend(VALUES[:6], curve).sensitivity


@pytest.mark.parametrize(
    ("rates", "value", "words"),
    [
        ((40, 80, 120), 12, "the last value that was tried, so a higher one may be better"),
        ((50, 97.7, 100), 12, "the last value that was tried, so a higher one may be better"),
        ((100, 90, 80), 4, "the first value that was tried, so a lower one may do as well"),
        ((100, 100.5, 99.9), 4, "all values from 4 to 12 are within 3% of each other"),
        ((100,), 4, "100 calls per second"),
    ],
)
def test_the_ends_of_the_range_are_named(rates: tuple[float, ...], value: int, words: str) -> None:
    found = of(*rates)
    assert found.value == value
    assert words in found.sentence


def test_a_value_that_breaks_a_promise_is_not_recommended_while_another_keeps_them() -> None:
    curve = [measured(50), measured(100, broken=["no_permit_leaked"])]
    found = recommend((4, 8), curve)
    assert found.value == 4
    assert "8 is 100% faster and breaks no_permit_leaked" in found.sentence
    every = recommend((4, 8), [measured(50, broken=["x"]), measured(100, broken=["x"])])
    assert (every.value, "every value breaks a promise (x)" in every.reason) == (8, True)


def test_calls_that_do_not_end_ok_are_the_reason() -> None:
    found = recommend((4, 8), [measured(100), measured(60, ok=60)])
    assert "8 loses 40% (40% of the calls do not end ok: mostly program_timeout)" in found.sentence


def test_failing_fast_is_no_throughput() -> None:
    """Calls that give up at once make room for others, which end ok: more of these per second, but
    fewer of all."""
    found = recommend([1, 2, 3], [measured(50, ok=80), measured(40, ok=96), measured(33, ok=100)])
    assert found.value == 3
    assert "2 is 21% faster (4% of the calls do not end ok" in found.sensitivity
    assert recommend_for_all([1, 3], {"all": [measured(50, ok=80), measured(33, ok=100)]}) == (
        3,
        0.0,
    )
    lost = recommend([1, 2], [measured(50, ok=80), measured(20, ok=80)])
    assert "20% of the calls do not end ok" in lost.reason


def test_nothing_is_recommended_where_nothing_works() -> None:
    found = of(0, 0, ok=0)
    assert found.value is None
    assert found.sentence == "no call ended ok at any value; the calls ended with program_timeout"
    assert of(100, 100, error="it broke").sensitivity == "it broke"
    assert recommend_for_all((4, 8), {"": [measured(0, ok=0)] * 2}) is None


def test_a_value_at_which_one_of_several_runs_broke_is_not_recommended() -> None:
    sound = GridSample(RunFigures(100, {"ok": 100}, 10.0, 100.0, attempts=100), ())
    broke = GridSample(RunFigures(0, {}, 0.0, 0.0), (), "it broke")
    found = recommend((4, 8), [Measured.of([sound, sound, broke]), Measured.of([sound] * 3)])
    assert found.value == 8


def test_one_value_for_all_conditions_loses_least_where_it_loses_most() -> None:
    few = [*map(measured, (50, 100, 100, 60))]
    many = [*map(measured, (30, 60, 96, 100))]
    assert recommend_for_all((4, 8, 12, 16), {"few": few, "many": many}) == (
        12,
        pytest.approx(0.04),
    )


def test_a_difference_within_the_spread_over_seeds_does_not_count() -> None:
    def seeds(*rates: float) -> Measured:
        return Measured.of([GridSample(RunFigures(1, {"ok": 1}, 1.0, rate)) for rate in rates])

    overlapping = recommend((4, 8), [seeds(94, 96.5, 99), seeds(98, 100, 102)])
    assert overlapping.value == 4
    assert "3.5% below the best, which is within the spread over the seeds" in overlapping.reason
    assert "4 to 8 lose under 4%" in overlapping.sensitivity
    assert recommend_for_all((4, 8), {"": [seeds(94, 96.5, 99), seeds(98, 100, 102)]}) == (
        4,
        pytest.approx(0.035),
    )
    assert recommend((4, 8), [seeds(96, 96.5, 97), seeds(98, 100, 102)]).value == 8
    assert recommend((4, 8), [seeds(80, 94, 99), seeds(98, 100, 102)]).value == 8


def test_words_have_no_knee() -> None:
    found = recommend(("a", "b"), [measured(50), measured(100)])
    assert (found.value, found.knee, found.reason) == ("b", None, "100 calls per second")


def test_a_value_below_that_is_faster_but_breaks_a_promise_is_said_to_be_faster() -> None:
    assert (
        "4 is 50% faster and breaks x"
        in recommend((4, 8), [measured(150, broken=["x"]), measured(100)]).sentence
    )
