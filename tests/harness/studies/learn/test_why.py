"""A learned scenario is like its log, or says why it is not, figure by figure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sfusion.harness.studies.learn.check import check, compare_figures
from sfusion.harness.studies.learn.distributions import fit
from sfusion.harness.studies.learn.draft import scenario_text
from sfusion.harness.studies.learn.learned import learn, log_figures
from sfusion.harness.studies.learn.why import reasons, time_use_of
from sfusion_tools.record import Call
from tests.cases import every
from tests.harness.studies.learn.records import call
from tests.harness.studies.made_calls import attempt_at, call_at

TIMEOUT = 6.0


def mixed(*, calls: int = 400, waited: float = 0.0, seed: int = 3) -> list[Call]:
    """Programs of very different lengths, of which 4 % run into the time limit."""
    draw = random.Random(seed)
    free = [0.0] * 8
    found = []
    for number in range(calls):
        free.sort()
        began = free[0]
        ran = 0.7 * draw.lognormvariate(0.0, 1.25)
        outcome = "ok"
        if ran >= TIMEOUT:
            ran = TIMEOUT + 0.02 * draw.random()
            outcome = "program_timeout"
        free[0] = began + waited + ran + 0.002
        sent = attempt_at(
            began + waited, ran + 0.002, "s", 200, outcome, waited=waited, execution_time=ran
        )
        took = free[0] - began
        found.append(call_at(f"c{number}", began, took, "client", outcome, "w", (sent,)))
    return found


def alike(seconds: float = 1.0, failed: int = 100, longest: float = 2.0) -> Sequence[Call]:
    """A thousand calls, of which some failed and one in ten took longer."""
    calls = []
    for number in range(1000):
        outcome = "sandbox_error" if number < failed else "ok"
        took = longest if number % 10 == 0 else seconds
        calls.append(call(number, float(number), took, outcome=outcome))
    return calls


@every(
    (
        ({}, set()),
        ({"failed": 119, "seconds": 1.14, "longest": 2.28}, set()),
        ({"failed": 121}, {"ok", "sandbox_error"}),
        ({"seconds": 1.16}, {"p50 of a call"}),
        ({"longest": 2.36}, {"p95 of a call"}),
    ),
    str,
)
def test_outcomes_may_differ_by_two_points_and_durations_by_15_percent(
    case: tuple[dict[str, float], set[str]],
) -> None:
    changed, out = case
    rows = compare_figures(log_figures(alike()), log_figures(alike(**changed)))
    assert {row.name for row in rows if not row.agrees} == out


def test_a_few_calls_are_compared_with_several_runs() -> None:
    one, other = alike(), alike(failed=300)
    both = log_figures(one, other)
    assert both.calls == 2000
    assert both.outcomes == {"ok": 1600, "sandbox_error": 400}
    assert both.per_second == pytest.approx(log_figures(one).per_second)
    learned = learn(one[:250])
    checked = check(learned, scenario_text(learned, "x", "x"))
    (row,) = (row for row in checked.rows if row.name == "sandbox_error")
    assert float(row.bound.split()[0]) < 4, "as for a thousand calls, not as for 250"


@pytest.mark.parametrize("seed", range(2))
def test_no_more_programs_run_into_their_time_limit_than_in_the_log(seed: int) -> None:
    learned = learn(mixed(seed=seed))
    checked = check(learned, scenario_text(learned, "x", "x"))
    assert checked.again is not None
    log = learned.figures.share("program_timeout")
    assert log > 0.02
    assert checked.again.figures.share("program_timeout") == pytest.approx(log, abs=0.02)


def test_a_shape_that_goes_beyond_a_limit_is_not_near() -> None:
    draw = random.Random(1)
    sample = [value for _ in range(900) if (value := draw.lognormvariate(0.0, 1.0)) < 3.0]
    assert fit(sample).shape == "lognormal"
    cut = fit(sample, 3.0)
    assert cut.shape == "choice"
    assert max(cut.numbers) < 3.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p95 of a call", "waits for permits take 2 s of a call on average, 0 s in the scenario"),
        ("calls per second", "waits for permits take 2 s of a call"),
        ("program_timeout", "of the programs ran for 3 s or more"),
    ],
)
def test_a_figure_that_is_out_has_a_reason(name: str, words: str) -> None:
    log = time_use_of(mixed(waited=2.0))
    (said,) = reasons([name], log, time_use_of(mixed()), 3.0)
    assert said.startswith(f"{name}: ")
    assert words in said


def test_refusals_are_named_by_how_attempts_ended() -> None:
    calls = mixed()
    refused = attempt_at(0.0, 0.01, "s", 503, "sandbox_error")
    also = [replace(call, attempts=[refused, *call.attempts]) for call in calls]
    (said,) = reasons(["attempts per call"], time_use_of(also), time_use_of(calls), TIMEOUT)
    assert said == (
        "attempts per call: 50.0% of the attempts ended with status 503, 0.0% in the scenario"
    )


def test_the_reasons_of_a_check_are_those_of_the_figures_that_are_out() -> None:
    learned = learn(mixed())
    text = scenario_text(learned, "x", "x").replace("concurrency: 8", "concurrency: 2")
    checked = check(learned, text)
    out = [row.name for row in checked.rows if not row.agrees]
    assert "calls per second" in out
    assert [said.partition(":")[0] for said in checked.reasons] == out
    assert any("calls are under way on average" in said for said in checked.reasons)
