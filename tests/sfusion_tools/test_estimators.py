"""Estimators that leave lost samples out, in lists and arrays; tests/verl has tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.harness.trial.trial import judge
from sfusion_tools import estimators
from sfusion_tools.advantages import Estimator, advantages, without_lost

ALL = {name: getattr(estimators, name) for name in estimators.__all__}
GROUPS = ["a"] * 4 + ["b"] * 4
REWARDS = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]


@pytest.mark.parametrize("estimate", ALL.values(), ids=ALL)
def test_the_judge_finds_nothing(estimate: Callable[..., Any]) -> None:
    def by_lost(rewards: list[float], groups: list[str], lost: list[bool]) -> Any:
        return estimate(rewards, groups, lost)

    def by_reward(rewards: list[float], groups: list[str]) -> Any:
        return estimate(rewards, groups)

    for function in (by_lost, by_reward):
        result = judge(function)
        assert {verdict.state for verdict in result.verdicts} == {"held"}, result.table()


@pytest.mark.parametrize("estimate", ALL.values(), ids=ALL)
def test_without_losses_they_are_the_plain_estimators(estimate: Callable[..., Any]) -> None:
    plain = advantages(REWARDS, GROUPS, Estimator(estimate.__name__))
    assert estimate(REWARDS, GROUPS) == pytest.approx(plain)


def test_single_samples_keep_their_reward_only_if_every_prompt_has_one() -> None:
    assert without_lost([1.0, 0.5], ["a", "b"], estimator=Estimator.RLOO) == [1.0, 0.5]
    assert without_lost([1.0, 1.0, 0.0], ["a", "b", "b"], estimator=Estimator.RLOO) == [0, 1, -1]


def test_divided_by_kept_the_mean_is_that_of_the_samples_in_the_loss() -> None:
    lost = [False, True, False, False]
    by_all = without_lost([1, 1, 0, 0], ["a"] * 4, lost, estimator=Estimator.DR_GRPO)
    by_kept = without_lost(
        [1, 1, 0, 0], ["a"] * 4, lost, estimator=Estimator.DR_GRPO, divide_by="kept"
    )
    assert by_all == pytest.approx([2 / 3, 0, -1 / 3, -1 / 3])
    assert by_kept == pytest.approx([value * 4 / 3 for value in by_all])
    tokens = [2.0, 6.0, 1.0, 1.0]
    weighted = without_lost(
        [1, 1, 0, 0],
        ["a"] * 4,
        lost,
        estimator=Estimator.DR_GRPO,
        tokens=tokens,
        divide_by="kept",
    )
    assert weighted == pytest.approx([value * 10 / 4 for value in by_all])
    nothing_left = without_lost([1, 1], ["a", "a"], [True, True], divide_by="kept")
    assert nothing_left == [0, 0]


def test_what_is_not_a_reward_is_refused() -> None:
    with pytest.raises(ValueError, match=r"rewards\[1\] is inf"):
        estimators.grpo([1.0, math.inf], ["a", "a"])
    with pytest.raises(ValueError, match="sum those of its tokens"):
        estimators.grpo([[0.0, 1.0], [0.0, 0.0]], ["a", "a"])


def test_arrays_stay_arrays_and_a_prompts_tokens_are_a_group() -> None:
    numpy = pytest.importorskip("numpy")
    prompts = numpy.array([[5, 6], [5, 6], [5, 6], [7, 8], [7, 8]])
    found = estimators.dr_grpo(numpy.array([1.0, numpy.nan, 0.0, 1.0, 1.0]), prompts)
    assert isinstance(found, numpy.ndarray)
    assert found.tolist() == [0.5, 0.0, -0.5, 0.0, 0.0]
