"""Advantage estimators that leave a lost sample out, in the signatures of several trainers."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any

EPSILON = 1e-4


def _left_out(
    rewards: Sequence[float],
    groups: Sequence[Hashable],
    kept: Sequence[bool],
    advantage: Callable[[float, list[float]], float],
) -> list[float]:
    """Return 0 for lost samples and lone survivors, for others a function of the survivors."""
    survivors: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group, keep in zip(rewards, groups, kept, strict=True):
        if keep:
            survivors[group].append(reward)
    found = []
    for reward, group, keep in zip(rewards, groups, kept, strict=True):
        if keep and len(survivors[group]) > 1:
            found.append(advantage(reward, survivors[group]))
        else:
            found.append(0.0)
    return found


def _normal(reward: float, survivors: list[float]) -> float:
    return (reward - statistics.fmean(survivors)) / (statistics.stdev(survivors) + EPSILON)


def _centred(reward: float, survivors: list[float]) -> float:
    return reward - statistics.fmean(survivors)


def by_mask(rewards: list[float], groups: list[str], mask: list[int]) -> list[float]:
    """GRPO without the masked samples."""
    return _left_out(rewards, groups, [bool(keep) for keep in mask], _normal)


def by_token_mask(scores: list[float], index: list[str], loss_mask: list[list[int]]) -> list[float]:
    """GRPO with a loss mask for each token: a sample without a token in the loss is lost."""
    return _left_out(scores, index, [any(row) for row in loss_mask], _normal)


def by_lost(
    rewards: list[float], uids: Sequence[Hashable], lost: list[bool]
) -> tuple[list[float], None]:
    """Centred only, with details beside the advantages."""
    return _left_out(rewards, uids, [not gone for gone in lost], _centred), None


def leave_one_out(rewards: list[float], group_ids: list[str], valid: list[bool]) -> list[float]:
    """RLOO over the survivors."""

    def advantage(reward: float, survivors: list[float]) -> float:
        return reward - (sum(survivors) - reward) / (len(survivors) - 1)

    return _left_out(rewards, group_ids, valid, advantage)


def by_nan(rewards: list[float], num_generations: int) -> list[float]:
    """A NaN is a lost sample; groups are slices, so rows must never be dropped."""
    if len(rewards) % num_generations:
        raise ValueError(f"{len(rewards)} rewards, groups of {num_generations}")
    kept = [reward is not None and not math.isnan(reward) for reward in rewards]
    groups = [place // num_generations for place in range(len(rewards))]
    return _left_out(rewards, groups, kept, _normal)


def by_none(rewards: list[float | None], prompts: list[str]) -> list[float]:
    """None is a lost sample; a NaN is refused."""
    kept = [reward is not None for reward in rewards]
    scores = [0.0 if reward is None else reward for reward in rewards]
    if any(math.isnan(score) for score in scores):
        raise ValueError("a reward is NaN; a lost sample is None")
    return _left_out(scores, prompts, kept, _normal)


def by_dropped_rows(rewards: list[float], groups: list[str]) -> list[float]:
    """Whoever calls it drops lost samples; numbers that are not finite are refused."""
    if not all(map(math.isfinite, rewards)):
        raise ValueError("rewards must be finite")
    return _left_out(rewards, groups, [True] * len(rewards), _centred)


def whitened(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
    """Group mean, then whitening over the batch, both without lost samples and lone survivors."""
    alone = _left_out(rewards, groups, [not gone for gone in lost], lambda *_: 1.0)
    centred = _left_out(rewards, groups, [not gone for gone in lost], _centred)
    inside = [value for value, there in zip(centred, alone, strict=True) if there]
    if len(inside) < 2:
        return [0.0] * len(rewards)
    mean = statistics.fmean(inside)
    spread = math.sqrt(statistics.variance(inside) + 1e-8)
    return [
        (value - mean) / spread if there else 0.0
        for value, there in zip(centred, alone, strict=True)
    ]


def ranks(rewards: list[float], groups: list[str], dropped: list[bool]) -> list[float]:
    """The share of survivors that a sample beats, minus the share that beats it."""

    def advantage(reward: float, survivors: list[float]) -> float:
        wins = sum(reward > other for other in survivors) - sum(
            reward < other for other in survivors
        )
        return wins / len(survivors)

    return _left_out(rewards, groups, [not gone for gone in dropped], advantage)


def per_token(
    token_level_rewards: list[list[float]], uids: list[str], response_mask: list[list[int]]
) -> list[list[float]]:
    """Rewards, mask and advantages have a value for each token."""
    scores = [
        sum(value for value, keep in zip(row, mask, strict=True) if keep)
        for row, mask in zip(token_level_rewards, response_mask, strict=True)
    ]
    found = _left_out(scores, uids, [any(mask) for mask in response_mask], _normal)
    return [
        [value * keep for keep in mask] for value, mask in zip(found, response_mask, strict=True)
    ]


def without_the_group(
    rewards: list[float], groups: list[str], lost: list[bool]
) -> tuple[float, ...]:
    """A group that lost a sample is left out as a whole; advantages are small."""
    hit = {group for group, gone in zip(groups, lost, strict=True) if gone}
    found = _left_out(rewards, groups, [group not in hit for group in groups], _normal)
    return tuple(1e-5 * value for value in found)


RIGHT: dict[str, Any] = {
    function.__name__: function
    for function in (
        by_mask, by_token_mask, by_lost, leave_one_out, by_nan, by_none, by_dropped_rows,
        whitened, ranks, per_token, without_the_group,
    )
}  # fmt: skip
