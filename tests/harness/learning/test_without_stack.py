"""Trainings without the stack: the same figures where it adds nothing, and the stack elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.learning.trained import Trained, play_through_stack, play_training
from sfusion.harness.learning.without_stack import why_stack

FLAKY = {"name": "flaky", "probability": 0.3, "what": {"status": 500}}
KNOWN: dict[str, Any] = {
    "scenario": "toy",
    "about": "A toy learns.",
    "seed": 3,
    "tools": {"max_attempts": 1, "rate_limit": 8},
    "sandbox": {"faults": [FLAKY]},
    "training": {"steps": 3, "prompts": 2, "group": 4},
    "promises": ["tool_use_kept", "no_gradient_from_lost_samples"],
}


def task(**keys: Any) -> Task:
    return Task(Scenario.from_data({**KNOWN, **keys}), "sim")


RICH = [
    {"name": "head", "right": 0.5, "spread": 1, "tokens": 20},
    {"name": "call", "right": 0.9, "calls": 1, "again": 1, "guess": 0.4, "tokens_lost": 5},
    {"name": "check", "right": 0.95, "calls": 3, "length": 2},
]


@pytest.mark.parametrize(
    "training",
    [
        {"lost": "zero"},
        {"lost": "mask", "behaviours": RICH, "format_reward": 0.2, "kl": 0.1},
        {"lost": "exclude", "behaviours": RICH, "aggregation": "seq-mean-token-mean"},
        {"lost": "drop", "estimator": "dr_grpo"},
    ],
    ids=lambda training: training["lost"],
)
@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_the_stack_would_have_given_the_same(training: dict[str, Any], status: int) -> None:
    faults = [{**FLAKY, "what": {"status": status}}, {**FLAKY, "name": "other"}]
    one = task(training={**KNOWN["training"], **training}, sandbox={"faults": faults})
    quick = play_training(one)
    slow = play_through_stack(one)
    assert quick.why_stack == ""
    assert any(step["lost"] for step in quick.steps)
    for mine, theirs in zip(quick.steps, slow.steps, strict=True):
        assert {**mine, "at": 0} == {**theirs, "at": 0}
    judged = {verdict.promise: verdict for verdict in slow.verdicts}
    for verdict in quick.verdicts:
        assert (verdict.state, verdict.sentence) == (
            judged[verdict.promise].state,
            judged[verdict.promise].sentence,
        )


def test_a_program_that_never_ends_goes_the_same_way_through_the_stack() -> None:
    """Not left to the quick way, since only the stack knows what its time limits do."""
    hang = {"name": "hang", "right": 0.3, "calls": 1, "provokes": 1.0}
    for endless in ("scored", "lost"):
        training = {**KNOWN["training"], "endless": endless, "lost": "exclude"}
        training["behaviours"] = [RICH[0], hang]
        one = task(training=training, sandbox={})
        assert why_stack(one) == "programs never end"
        for step in play_training(one).steps:
            twin = step["twin"]
            assert {key: step[key] for key in twin} == twin


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"tools": {"max_attempts": 2}}, "calls are retried"),
        ({"tools": {}}, "calls are retried"),
        ({"tools": {"max_attempts": 1, "guard": {"then": "fail"}}}, "the tool has `guard`"),
        ({"tools": {"max_attempts": 1, "rate_limit": 1, "default_timeout": 1}}, "calls may wait"),
        ({"sandbox": {"model": {"kind": "quota", "in_flight": 2}}}, "a model of its own"),
        ({"sandbox": {"faults": [{**FLAKY, "between": ["1s", "2s"]}]}}, "more than a probability"),
        ({"sandbox": {"faults": [{**FLAKY, "what": {"status": 429}}]}}, "more than a probability"),
        ({"sandbox": {"faults": [{**FLAKY, "what": "hang"}]}}, "more than a probability"),
        ({"horizon": 10}, "the horizon"),
        ({"promises": ["every_call_ends_once"]}, "every_call_ends_once is about calls"),
        ({"sandbox": {"instances": 2}}, "more than one"),
    ],
    ids=str,
)
def test_what_could_change_a_loss_goes_through_the_stack(keys: dict[str, Any], why: str) -> None:
    assert why in why_stack(task(**keys))
    assert why_stack(task()) == ""


def test_which_of_the_two_was_played_is_said() -> None:
    part = task().scenario.training
    assert part is not None
    quick = Trained(part, [play_training(task())])
    slow = Trained(part, [play_through_stack(task())])
    retried = Trained(part, [play_training(task(tools={"max_attempts": 2, "rate_limit": 8}))])
    assert quick.played.startswith("Played without the stack")
    assert slow.played == "Played through the stack: asked for."
    assert retried.played == "Played through the stack: calls are retried."


def test_a_fault_that_never_struck_is_unknown() -> None:
    rare = {**FLAKY, "name": "rare", "probability": 1e-9}
    found = play_training(task(sandbox={"faults": [FLAKY, rare]}))
    assert found.why_stack == ""
    assert [verdict.sentence for verdict in found.verdicts if verdict.state == "unknown"] == [
        "fault rare never struck"
    ]
