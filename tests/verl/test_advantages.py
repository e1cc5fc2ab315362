"""Our estimators give what verl's own functions give."""

from __future__ import annotations

import random
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
algorithms: Any = pytest.importorskip("verl.trainer.ppo.core_algos")

from sfusion_tools.advantages import Estimator, Handling, advantages, handled  # noqa: E402

STEPS, GROUPS = 100, 10
"""A thousand groups in all."""


def drawn(seed: int) -> tuple[list[float], list[str], list[int]]:
    """Return scores, groups and numbers of tokens of a step: sizes from 1 to 8, scores binary or
    not."""
    draw = random.Random(seed)
    binary = draw.random() < 0.5
    scores, groups, tokens = [], [], []
    for group in range(GROUPS):
        for _ in range(draw.randint(1, 8)):
            scores.append(float(draw.random() < 0.5) if binary else draw.uniform(-2, 2))
            groups.append(f"g{group}")
            tokens.append(draw.randint(1, 6))
    return scores, groups, tokens


def of_verl(
    name: str, scores: list[float], groups: list[str], tokens: list[int], **options: Any
) -> list[float]:
    """Return the advantage of each sample: that of its tokens, which all have the same; 0 if it has
    none."""
    width = max(tokens)
    mask = torch.tensor([[1.0] * count + [0.0] * (width - count) for count in tokens])
    rewards = torch.zeros(len(scores), width)
    rewards[:, 0] = torch.tensor(scores)
    function = algorithms.get_adv_estimator_fn(name)
    found, _ = function(
        token_level_rewards=rewards, response_mask=mask, index=np.array(groups), **options
    )
    assert torch.equal(found * (1 - mask), torch.zeros_like(found))
    return [float(row[0]) for row in found]


@pytest.mark.parametrize(
    ("estimator", "name", "options"),
    [
        (Estimator.GRPO, "grpo", {}),
        (Estimator.DR_GRPO, "grpo", {"norm_adv_by_std_in_grpo": False}),
        (Estimator.RLOO, "rloo", {}),
        (Estimator.REINFORCE_PLUS_PLUS_BASELINE, "reinforce_plus_plus_baseline", {}),
    ],
)
def test_a_thousand_drawn_groups_get_verls_advantages(
    estimator: Estimator, name: str, options: dict[str, Any]
) -> None:
    for seed in range(STEPS):
        scores, groups, tokens = drawn(seed)
        assert advantages(scores, groups, estimator, tokens) == pytest.approx(
            of_verl(name, scores, groups, tokens, **options),
            abs=2e-3 if estimator is Estimator.GRPO else 1e-4,
        )


@pytest.mark.parametrize("estimator", [Estimator.RLOO, Estimator.REINFORCE_PLUS_PLUS_BASELINE])
def test_a_loss_mask_is_verls_response_mask_without_the_lost_samples(estimator: Estimator) -> None:
    for seed in range(20):
        scores, groups, tokens = drawn(seed)
        lost = [random.Random(f"{seed} {place}").random() < 0.3 for place in range(len(scores))]
        mine = handled(scores, groups, lost, Handling.MASK, estimator, tokens=tokens).advantages
        masked = [0 if gone else count for count, gone in zip(tokens, lost, strict=True)]
        assert mine == pytest.approx(of_verl(estimator.value, scores, groups, masked), abs=1e-4)
