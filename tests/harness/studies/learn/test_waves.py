"""A change of how calls end is a cause, also where every request was answered."""

from __future__ import annotations

import random

import pytest

from sfusion.harness.studies.learn.learned import learn
from tests.harness.studies.learn.records import call


@pytest.mark.parametrize("outcome", ["program_error", "program_timeout", "compile_error", "cancelled"])
def test_calls_that_all_end_otherwise_from_some_time_on_are_a_cause(outcome: str) -> None:
    learned = learn([call(n, 1e9 + 0.1 * n, outcome=outcome if n >= 300 else "ok") for n in range(600)])
    assert learned.headline == f"{outcome}_wave"
    assert learned.causes[0].says == f"100% {outcome} instead of 0% since 30 s"


def test_programs_that_fail_more_often_for_a_while_are_a_cause_and_a_steady_share_of_them_is_none() -> None:
    draw = random.Random(1)
    steady, wave = (
        [
            call(
                n,
                1e9 + 0.1 * n,
                outcome="program_error" if draw.random() < (more if 800 <= n < 1200 else 0.3) else "ok",
            )
            for n in range(2000)
        ]
        for more in (0.3, 0.7)
    )
    assert learn(steady).causes == ()
    (cause,) = learn(wave).causes
    assert cause.kind == "program_error_wave"
    assert "otherwise" in cause.evidence
    assert cause.weight == pytest.approx(0.08, abs=0.02)
