"""Promises about what a toy training learned, each broken by scoring lost samples 0."""

from __future__ import annotations

from functools import cache

from sfusion.harness.lab.promises import Verdict
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task, read_tasks
from sfusion.harness.lab.scenarios.reading import scenario_files


@cache
def verdicts(lost: str) -> dict[str, Verdict]:
    (task,) = read_tasks(scenario_files(["outage-trained-as-zeros"]), "sim")
    training = {**task.scenario.plain["training"], "lost": lost}
    return {
        one.promise: one
        for one in run_one(Task(task.scenario.changed(training=training), "sim")).verdicts
    }


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
    assert "of the weight in the loss comes from 6 lost samples" in sentence(
        "no_gradient_from_lost_samples"
    )


def test_no_signal_only_through_losses() -> None:
    assert "had a signal only through lost samples" in sentence("no_signal_only_through_losses")
