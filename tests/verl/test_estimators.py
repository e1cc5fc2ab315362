"""Our estimators inside verl, beside verl's own, on the planted group [1, lost, 0, 0]."""

from __future__ import annotations

import math
from typing import Any

import pytest

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
algorithms: Any = pytest.importorskip("verl.trainer.ppo.core_algos")

from sfusion.harness.trial.trial import judge  # noqa: E402
from sfusion_tools import estimators  # noqa: E402
from sfusion_tools.verl_estimators import BY_KEPT, NAMES  # noqa: E402
from tests.trainers import ROWS, judged  # noqa: E402
from tests.verl.test_advantages import drawn, of_verl  # noqa: E402

OWN = {
    "sfusion_grpo": ("grpo", {}),
    "sfusion_dr_grpo": ("grpo", {"norm_adv_by_std_in_grpo": False}),
    "sfusion_rloo": ("rloo", {}),
    "sfusion_reinforce_plus_plus_baseline": ("reinforce_plus_plus_baseline", {}),
}


def planted(name: str, lost_reward: float, *, masked: bool) -> list[float]:
    """Return the advantages of [1, lost, 0, 0] and [1, 1, 0, 0] by an estimator of verl's
    registry, as its trainer calls it."""
    scores = [1.0, lost_reward, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    rewards = torch.zeros(8, 3)
    rewards[:, 2] = torch.tensor(scores)
    mask = torch.ones(8, 3)
    mask[1] = 0.0 if masked else 1.0
    function = algorithms.get_adv_estimator_fn(name)
    index = np.array(["a"] * 4 + ["b"] * 4, dtype=object)
    found, returns = function(
        token_level_rewards=rewards, response_mask=mask, index=index, config=None
    )
    assert found.shape == returns.shape == mask.shape
    return [float(row[0]) for row in found]


def test_a_lost_sample_has_no_part_in_our_grpo_and_moves_verls_own() -> None:
    right = [1.1547, 0.0, -0.5773, -0.5773, 0.866, 0.866, -0.866, -0.866]
    for lost_reward in (0.0, 1.0, 7.0):
        assert planted("sfusion_grpo", lost_reward, masked=True) == pytest.approx(right, abs=1e-3)
    assert planted("sfusion_grpo", math.nan, masked=False) == pytest.approx(right, abs=1e-3)
    own = [planted("grpo", reward, masked=True)[0] for reward in (0.0, 1.0)]
    assert own == pytest.approx([1.5, 0.866], abs=1e-3)
    assert math.isnan(planted("grpo", math.nan, masked=False)[0])


def test_divided_by_kept_is_scaled_by_the_share_of_tokens_in_the_loss() -> None:
    by_all = planted("sfusion_rloo", 0.0, masked=False)
    by_kept = planted("sfusion_rloo" + BY_KEPT, math.nan, masked=False)
    right = planted("sfusion_rloo", math.nan, masked=False)
    assert by_kept == pytest.approx([value * 8 / 7 for value in right], abs=1e-5)
    assert by_all != pytest.approx(right, abs=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_without_losses_they_are_verls_own(name: str) -> None:
    own, options = OWN[name]
    for seed in range(20):
        scores, groups, tokens = drawn(seed)
        sizes = {group: groups.count(group) for group in groups}
        kept = [place for place, group in enumerate(groups) if sizes[group] > 1]
        step = (
            [scores[place] for place in kept],
            [groups[place] for place in kept],
            [tokens[place] for place in kept],
        )
        expected = of_verl(own, *step, **options)
        assert of_verl(name, *step) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("name", [*NAMES, *(name + BY_KEPT for name in NAMES)])
def test_the_judge_finds_nothing_in_ours(name: str) -> None:
    result = judge(algorithms.get_adv_estimator_fn(name))
    assert {verdict.state for verdict in result.verdicts} == {"held"}, result.table()


def test_the_judge_finds_that_verls_own_only_mask() -> None:
    for name in ("grpo", "rloo", "reinforce_plus_plus_baseline", "gpg"):
        result = judge(algorithms.get_adv_estimator_fn(name), scenes="mask")
        kinds = {verdict.how.kind for verdict in result.verdicts if verdict.state == "broken"}
        assert "masked_only" in kinds, result.table()


def test_tensors_stay_tensors() -> None:
    rewards = torch.tensor([1, 0, 0, 0])
    found = estimators.grpo(rewards, torch.tensor([3, 3, 3, 3]), torch.tensor([0, 1, 0, 0]))
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx([1.1547, 0.0, -0.5773, -0.5773], abs=1e-3)


def test_the_table_of_trainers_says_what_the_judge_finds() -> None:
    rows = [row for row in ROWS if row.targets]
    assert rows
    for row in rows:
        assert set(judged(row).values()) == {row.verdict}, row
