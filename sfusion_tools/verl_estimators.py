"""Registers estimators that leave lost samples out in verl, as ``adv_estimator``.

verl loads this module by itself where sfusion is installed (its entry points ``verl.plugins``), or
with ``VERL_USE_EXTERNAL_MODULES=sfusion_tools.verl_estimators``. Then
``algorithm.adv_estimator=sfusion_grpo`` is all that is needed. The names are those of ``NAMES``;
with ``_by_kept`` at the end, lost samples do not count in what the loss is divided by either.

A sample is lost if its reward is NaN, or if no token of it is in ``response_mask``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from sfusion_tools.advantages import Estimator, without_lost

NAMES = {
    "sfusion_grpo": Estimator.GRPO,
    "sfusion_dr_grpo": Estimator.DR_GRPO,
    "sfusion_rloo": Estimator.RLOO,
    "sfusion_reinforce_plus_plus_baseline": Estimator.REINFORCE_PLUS_PLUS_BASELINE,
}
"""What to write as ``adv_estimator``."""
BY_KEPT = "_by_kept"


def token_advantages(
    token_level_rewards: Any,
    response_mask: Any,
    index: Any,
    *,
    estimator: Estimator,
    divide_by: Literal["all", "kept"] = "all",
) -> Any:
    """Return an advantage for each token, 0 for those of lost samples."""
    tokens = response_mask.sum(dim=-1).tolist()
    advantages = without_lost(
        token_level_rewards.sum(dim=-1).tolist(),
        list(index),
        [count == 0 for count in tokens],
        estimator=estimator,
        tokens=tokens,
        divide_by=divide_by,
    )
    rows = token_level_rewards.new_tensor(advantages)
    return rows.unsqueeze(-1) * response_mask


def _estimator(estimator: Estimator, divide_by: Literal["all", "kept"]) -> Callable[..., Any]:
    def compute(
        token_level_rewards: Any, response_mask: Any, index: Any, config: Any = None, **_: Any
    ) -> tuple[Any, Any]:
        found = token_advantages(
            token_level_rewards, response_mask, index, estimator=estimator, divide_by=divide_by
        )
        return found, found

    return compute


def register() -> None:
    """Register every estimator in verl; those that are there already stay."""
    from verl.trainer.ppo import core_algos

    for name, estimator in NAMES.items():
        _register(core_algos, name, _estimator(estimator, "all"))
        _register(core_algos, name + BY_KEPT, _estimator(estimator, "kept"))


def _register(core_algos: Any, name: str, function: Callable[..., Any]) -> None:
    if name not in core_algos.ADV_ESTIMATOR_REGISTRY:
        core_algos.register_adv_est(name)(function)


register()
