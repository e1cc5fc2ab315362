"""Promises about what a toy training learned, each broken by scoring lost samples 0, and which of
them say nothing where nothing was lost."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from sfusion.harness.core.journal import Journal
from sfusion.harness.core.run_events import RunEvents
from sfusion.harness.lab.promises import PROMISES, Verdict
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task, read_tasks
from sfusion.harness.lab.scenarios.reading import scenario_files
from tests.cases import every
from tests.seeds import with_seeds


@cache
def verdicts(lost: str) -> dict[str, Verdict]:
    (task,) = read_tasks(scenario_files(["outage-left-out-of-training"]), "sim")
    training = {**task.scenario.plain["training"], "lost": lost}
    played = run_one(Task(task.scenario.changed(training=training), "sim"))
    return {verdict.promise: verdict for verdict in played.verdicts}


def sentence(promise: str) -> str:
    """Return how it is broken by zeros, where it holds if lost samples are left out."""
    assert verdicts("exclude")[promise].state == "held"
    assert verdicts("zero")[promise].state == "broken"
    return verdicts("zero")[promise].sentence


def test_tool_use_kept() -> None:
    assert "promised at most 0.1 less" in sentence("tool_use_kept")


def test_several_calls_kept() -> None:
    assert "P(several calls) is" in sentence("several_calls_kept")


def test_tool_use_recovers() -> None:
    assert "1 step after the last lost sample" in sentence("tool_use_recovers")


def test_push_has_the_twins_sign() -> None:
    assert "the mean push on tool use is -" in sentence("push_has_the_twins_sign")


def test_no_gradient_from_lost_samples() -> None:
    assert "of the weight in the loss comes from " in sentence("no_gradient_from_lost_samples")


def test_no_signal_only_through_losses() -> None:
    assert "had a signal only through lost samples" in sentence("no_signal_only_through_losses")


ALL = (
    "tool_use_kept",
    "several_calls_kept",
    "tool_use_recovers",
    "push_has_the_twins_sign",
    "no_gradient_from_lost_samples",
    "no_signal_only_through_losses",
)


@cache
def calm_verdicts() -> dict[str, Verdict]:
    (task,) = read_tasks(scenario_files(["outage-left-out-of-training"]), "sim")
    training = {**task.scenario.plain["training"], "steps": 7}
    calm = task.scenario.changed(training=training, sandbox={}, promises=list(ALL))
    return {verdict.promise: verdict for verdict in run_one(Task(calm, "sim")).verdicts}


@every(ALL, str)
def test_none_of_them_applies_to_a_training_that_lost_nothing(promise: str) -> None:
    found = calm_verdicts()[promise]
    assert found.state == "not_applicable"
    assert "no sample lost a call" in found.sentence


def pushed(pushes: list[float], twins: list[float]) -> Verdict:
    """Judge the push of steps that each lost a sample."""
    events: list[dict[str, Any]] = []
    for step, (push, twin) in enumerate(zip(pushes, twins, strict=True), 1):
        facts = {"step": step, "lost": 1, "trained_push": push, "twin": {"trained_push": twin}}
        events.append({"at": step, "source": "world", "event": "trained", **facts})
    return PROMISES["push_has_the_twins_sign"]().check(RunEvents(Journal({}, events)))


def test_a_push_away_is_found_also_where_the_twin_has_nothing_left_to_learn() -> None:
    away = [-0.085, -0.07, -0.09, -0.08]
    assert pushed(away, [0.0] * 4).state == "broken"
    assert pushed(away, [0.1, 0.12, 0.1, 0.09]).state == "broken"
    assert pushed(away, [-0.1, -0.12, -0.1, -0.09]).state == "held"
    assert pushed([0.1, 0.1, 0.12, 0.09], away).state == "broken"
    unclear = pushed([-0.2, 0.2, -0.1, 0.08], [0.1] * 4)
    assert unclear.state == "held"
    assert "may be chance" in unclear.sentence
    assert "may be chance" not in pushed(away, [-0.1, -0.12, -0.1, -0.09]).sentence


def test_steps_that_push_nowhere_say_nothing_about_the_sign() -> None:
    assert pushed([0.0] * 3, [0.1] * 3).state == "not_applicable"


def test_a_lone_step_must_push_clearly() -> None:
    assert pushed([-0.05], [0.2]).state == "held"
    assert pushed([-0.2], [0.2]).state == "broken"


TRAININGS = (
    "outage-left-out-of-training",
    "outage-trained-as-zeros",
    "masked-but-in-the-baseline",
    "dead-server-read-as-failing-code",
)


@pytest.mark.parametrize("name", TRAININGS)
@with_seeds(11, 12, 1000)
def test_the_bundled_trainings_hold_with_other_seeds(name: str, seed: int) -> None:
    (task,) = read_tasks(scenario_files([name]), "sim")
    played = run_one(Task(task.scenario.changed(seed=seed), "sim"))
    wrong = [v.sentence for v in played.verdicts if v.state in ("broken", "unknown")]
    assert not wrong
    assert any(verdict.held for verdict in played.verdicts)


@with_seeds(11, 12)
def test_scored_zero_costs_the_tool_with_other_seeds(seed: int) -> None:
    """The opposite of what is promised where lost samples are left out."""
    (task,) = read_tasks(scenario_files(["outage-trained-as-zeros"]), "sim")
    changed = task.scenario.changed(seed=seed, promises=["tool_use_kept"])
    verdicts = run_one(Task(changed, "sim")).verdicts
    assert [verdict.state for verdict in verdicts] == ["broken"]
