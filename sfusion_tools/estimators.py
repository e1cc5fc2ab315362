"""Advantage estimators that leave lost samples out of the baseline, for any trainer.

In most trainers a mask keeps a lost sample out of the loss, but its reward stays in the mean and
std of its group and moves the siblings. These functions take rewards with a value for each sample
(a tensor, an array or a list) and return advantages in the same container. A sample is lost if
``lost`` says so or if its reward is NaN or None; it gets the advantage 0, and so does a sample that
lost all its siblings. Where nothing is lost, they are equal to verl's. docs/trainers.md says where
they go; ``sfusion_tools.verl_estimators`` registers them in verl.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from sfusion_tools.advantages import Estimator, without_lost

__all__ = ["dr_grpo", "grpo", "reinforce_plus_plus_baseline", "rloo"]

DivideBy = Literal["all", "kept"]


def grpo(rewards: Any, groups: Any, lost: Any = None, *, divide_by: DivideBy = "all") -> Any:
    """Return (reward - mean of the group) / (std of the group + 1e-6), lost samples left out."""
    return _estimated(Estimator.GRPO, rewards, groups, lost, divide_by=divide_by)


def dr_grpo(rewards: Any, groups: Any, lost: Any = None, *, divide_by: DivideBy = "all") -> Any:
    """Return reward - mean of the group, lost samples left out."""
    return _estimated(Estimator.DR_GRPO, rewards, groups, lost, divide_by=divide_by)


def rloo(rewards: Any, groups: Any, lost: Any = None, *, divide_by: DivideBy = "all") -> Any:
    """Return reward - mean of the siblings, lost samples left out."""
    return _estimated(Estimator.RLOO, rewards, groups, lost, divide_by=divide_by)


def reinforce_plus_plus_baseline(
    rewards: Any,
    groups: Any,
    lost: Any = None,
    *,
    tokens: Any = None,
    divide_by: DivideBy = "all",
) -> Any:
    """Return reward - mean of the group, whitened over the step, lost samples left out.

    ``tokens`` says how many tokens each sample has in the loss; by default all have as many.
    """
    estimator = Estimator.REINFORCE_PLUS_PLUS_BASELINE
    return _estimated(estimator, rewards, groups, lost, tokens=tokens, divide_by=divide_by)


def _estimated(
    estimator: Estimator,
    rewards: Any,
    groups: Any,
    lost: Any,
    *,
    tokens: Any = None,
    divide_by: DivideBy = "all",
) -> Any:
    values = _plain(rewards)
    if any(isinstance(value, list) for value in values):
        raise ValueError("rewards must have one value for each sample; sum those of its tokens")
    found = without_lost(
        values,
        [_key(group) for group in _plain(groups)],
        None if lost is None else [bool(flag) for flag in _plain(lost)],
        estimator=estimator,
        tokens=None if tokens is None else _plain(tokens),
        divide_by=divide_by,
    )
    return _like(rewards, found)


def _plain(values: Any) -> list[Any]:
    """Return the rows of a tensor, an array or a list."""
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _key(group: Any) -> Hashable:
    """Return what tells a group from another; the tokens of a prompt do as well as a name."""
    group = group.item() if hasattr(group, "item") else group  # a list may hold tensors
    return tuple(group) if isinstance(group, list) else group


def _like(rewards: Any, advantages: list[float]) -> Any:
    """Return advantages in the container of the rewards, on the same device."""
    if hasattr(rewards, "new_tensor"):
        numbers = rewards if rewards.is_floating_point() else rewards.float()
        return numbers.new_tensor(advantages)
    if hasattr(rewards, "__array__"):
        import numpy

        return numpy.array(advantages)
    return advantages
