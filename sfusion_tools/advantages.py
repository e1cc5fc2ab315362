"""Advantages of a step's samples: estimators as verl 0.9.1, TRL 1.16 and NeMo RL define them, and
what may be done with lost samples.

A sample is lost if its last tool call was lost, so that its score says nothing about the model.
Groups are given as one key per sample; samples with equal keys are siblings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

_GRPO_EPSILON = 1e-6
_WHITEN_EPSILON = 1e-8
_TRL_EPSILON = 1e-4
"""What keeps a division by a std finite: verl's and NeMo's, verl's in whitening, TRL's."""
SIGNAL = 1e-6
"""An advantage of at most this size moves nothing."""


class Estimator(StrEnum):
    """How scores become advantages.

    The names are verl's, except for dr_grpo (verl's grpo without the std), grpo_batch_std (TRL's
    ``scale_rewards="batch"``) and grpo_leave_one_out (NeMo RL's default).
    """

    GRPO = "grpo"
    """(score - mean of the group) / (std of the group + 1e-6)."""
    DR_GRPO = "dr_grpo"
    """score - mean of the group."""
    RLOO = "rloo"
    """score - mean of the siblings."""
    REINFORCE_PLUS_PLUS_BASELINE = "reinforce_plus_plus_baseline"
    """score - mean of the group, whitened over the tokens of the whole step."""
    REINFORCE_PLUS_PLUS = "reinforce_plus_plus"
    """The score itself, whitened over the tokens of the whole step; groups do not count."""
    GRPO_BATCH_STD = "grpo_batch_std"
    """(score - mean of the group) / (std of the whole step + 1e-4)."""
    GRPO_LEAVE_ONE_OUT = "grpo_leave_one_out"
    """(score - mean of the siblings) / (std of the siblings + 1e-6)."""

    @property
    def is_whitened(self) -> bool:
        """True if one scale, which depends on every sample, holds for the whole step."""
        return self in (
            Estimator.REINFORCE_PLUS_PLUS_BASELINE,
            Estimator.REINFORCE_PLUS_PLUS,
            Estimator.GRPO_BATCH_STD,
        )


class Handling(StrEnum):
    """What is done with samples that lost a call."""

    ZERO = "zero"
    """They are trained on with the score that the trainer gave them, usually 0."""
    MASK = "mask"
    """They are out of the loss; their score still counts in the group's baseline."""
    EXCLUDE = "exclude"
    """They are out of the loss and of the baseline, and so is a sample that has lost all its
    siblings by that."""
    DROP = "drop"
    """Their whole group is out of the loss."""
    FAILED = "failed"
    """As if the call had been retried and the sample had failed; with `passed`, the bounds of a
    retry."""
    PASSED = "passed"
    """As if the call had been retried and the sample had passed."""


@dataclass(frozen=True, slots=True)
class Handled:
    """The advantages of a step under one handling; those out of the loss are 0."""

    advantages: list[float]
    in_loss: list[bool]

    def divisor(self, by_kept: bool) -> int:
        """Return what the loss is divided by: the samples in it, or all of them."""
        return max(1, sum(self.in_loss) if by_kept else len(self.in_loss))


def advantages(
    scores: Sequence[float],
    groups: Sequence[Hashable],
    estimator: Estimator = Estimator.GRPO,
    tokens: Sequence[float] | None = None,
    in_loss: Sequence[bool] | None = None,
) -> list[float]:
    """Return the advantage of each sample.

    A sample without siblings has the baseline 0 in verl; in TRL and NeMo its advantage is 0.
    Only whitening uses ``tokens``, how many each sample has in the loss (default: all alike), and
    ``in_loss``.
    """
    match estimator:
        case Estimator.GRPO_LEAVE_ONE_OUT:
            return _left_out(scores, groups)
        case Estimator.REINFORCE_PLUS_PLUS:
            return _whitened(scores, _token_weights(len(scores), tokens, in_loss))

    sums = _group_sums(scores, groups)
    centred = []
    for group, score in zip(groups, scores, strict=True):
        count, total = sums[group]
        centred.append(score - total / count if count > 1 else score)
    match estimator:
        case Estimator.DR_GRPO:
            return centred
        case Estimator.RLOO:
            others = {group: n / (n - 1) if n > 1 else 1.0 for group, (n, _) in sums.items()}
            return [value * others[group] for group, value in zip(groups, centred, strict=True)]
        case Estimator.GRPO:
            return _by_group_std(centred, groups, sums)
        case Estimator.GRPO_BATCH_STD:
            has_siblings = [sums[group][0] > 1 for group in groups]
            scale = 1 / (_std(scores) + _TRL_EPSILON)
            return [
                value * scale if related else 0.0
                for value, related in zip(centred, has_siblings, strict=True)
            ]
    return _whitened(centred, _token_weights(len(scores), tokens, in_loss))


def _group_sums(
    scores: Sequence[float], groups: Sequence[Hashable]
) -> dict[Hashable, tuple[int, float]]:
    """Return the number of samples of each group and the sum of their scores."""
    sums: dict[Hashable, tuple[int, float]] = {}
    for group, score in zip(groups, scores, strict=True):
        count, total = sums.get(group, (0, 0.0))
        sums[group] = count + 1, total + score
    return sums


def _by_group_std(
    centred: Sequence[float],
    groups: Sequence[Hashable],
    sums: dict[Hashable, tuple[int, float]],
) -> list[float]:
    """Divide what is centred by the std of its group; a group of one keeps its size."""
    squares = dict.fromkeys(sums, 0.0)
    for group, value in zip(groups, centred, strict=True):
        squares[group] += value**2
    stds = {}
    for group, (count, _) in sums.items():
        stds[group] = math.sqrt(squares[group] / (count - 1)) if count > 1 else 1.0
    return [
        value / (stds[group] + _GRPO_EPSILON) for group, value in zip(groups, centred, strict=True)
    ]


def _left_out(scores: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Compare each score with its siblings alone, in mean and in std.

    NeMo RL divides only by a std above 0. A sample without siblings counts for nothing, and one
    with a single sibling has no std.
    """
    members: dict[Hashable, list[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        members.setdefault(group, []).append(score)
    memo: dict[tuple[Hashable, float], float] = {}
    found = []
    for group, score in zip(groups, scores, strict=True):
        if (group, score) not in memo:
            memo[group, score] = _against_siblings(score, members[group])
        found.append(memo[group, score])
    return found


def _against_siblings(score: float, group: Sequence[float]) -> float:
    others = list(group)
    others.remove(score)
    if not others:
        return 0.0
    value = score - sum(others) / len(others)
    spread = _std(others)
    return value / (spread + _GRPO_EPSILON) if spread > 0 else value


def _std(values: Sequence[float]) -> float:
    """Return the std with Bessel's correction; 0 for fewer than two values."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    return math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _token_weights(
    count: int, tokens: Sequence[float] | None, in_loss: Sequence[bool] | None
) -> list[float]:
    """Return how much each sample counts in whitening: its tokens, or 0 if it is out of the
    loss."""
    weights = [1.0] * count if tokens is None else list(tokens)
    if in_loss is None:
        return weights
    return [weight if keep else 0.0 for weight, keep in zip(weights, in_loss, strict=True)]


def _whitened(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Shift and scale to mean 0 and variance 1 over tokens; 0 where fewer than two tokens are
    left."""
    total = sum(weights)
    if total <= 1:
        return [0.0] * len(values)
    weighted = list(zip(values, weights, strict=True))
    mean = sum(value * weight for value, weight in weighted) / total
    squares = sum(weight * (value - mean) ** 2 for value, weight in weighted)
    scale = 1 / math.sqrt(squares / (total - 1) + _WHITEN_EPSILON)
    return [(value - mean) * scale if weight else 0.0 for value, weight in weighted]


def handled(
    scores: Sequence[float],
    groups: Sequence[Hashable],
    lost: Sequence[bool],
    handling: Handling,
    estimator: Estimator = Estimator.GRPO,
    *,
    bounds: tuple[float, float] = (0.0, 1.0),
    tokens: Sequence[float] | None = None,
) -> Handled:
    """Return the advantages of a step under a handling of its lost samples; ``bounds`` are the
    scores of a retry."""
    match handling:
        case Handling.ZERO:
            return _all_trained(scores, groups, estimator, tokens)
        case Handling.FAILED:
            failed = _with_lost_at(bounds[0], scores, lost)
            return _all_trained(failed, groups, estimator, tokens)
        case Handling.PASSED:
            passed = _with_lost_at(bounds[1], scores, lost)
            return _all_trained(passed, groups, estimator, tokens)
        case Handling.MASK:
            return _masked(scores, groups, lost, estimator, tokens)
        case Handling.EXCLUDE | Handling.DROP:
            in_loss = _left_in_loss(groups, lost, whole_groups=handling is Handling.DROP)
            return _among_those_left(scores, groups, in_loss, estimator, tokens)


def _with_lost_at(retried: float, scores: Sequence[float], lost: Sequence[bool]) -> Sequence[float]:
    """Return the scores with another one for lost samples."""
    return [retried if gone else score for score, gone in zip(scores, lost, strict=True)]


def _all_trained(
    scores: Sequence[float],
    groups: Sequence[Hashable],
    estimator: Estimator,
    tokens: Sequence[float] | None,
) -> Handled:
    return Handled(advantages(scores, groups, estimator, tokens), [True] * len(scores))


def _masked(
    scores: Sequence[float],
    groups: Sequence[Hashable],
    lost: Sequence[bool],
    estimator: Estimator,
    tokens: Sequence[float] | None,
) -> Handled:
    in_loss = [not gone for gone in lost]
    found = advantages(scores, groups, estimator, tokens, in_loss)
    return Handled(
        [value if trained else 0.0 for value, trained in zip(found, in_loss, strict=True)],
        in_loss,
    )


def _left_in_loss(
    groups: Sequence[Hashable], lost: Sequence[bool], *, whole_groups: bool
) -> list[bool]:
    """Return which samples stay in the loss without the lost ones, or without their groups.

    Of a group of several, no single sample stays: verl would give it the baseline 0, a push for
    whatever it did.
    """
    present = Counter[Hashable]()
    hit = set[Hashable]()
    for group, gone in zip(groups, lost, strict=True):
        if gone:
            hit.add(group)
        else:
            present[group] += 1
    dropped = hit if whole_groups else {group for group in hit if present[group] == 1}
    return [not gone and group not in dropped for group, gone in zip(groups, lost, strict=True)]


def _among_those_left(
    scores: Sequence[float],
    groups: Sequence[Hashable],
    in_loss: list[bool],
    estimator: Estimator,
    tokens: Sequence[float] | None,
) -> Handled:
    """Return the advantages that samples in the loss have if there are no others."""
    places = [place for place, trained in enumerate(in_loss) if trained]
    found = advantages(
        [scores[place] for place in places],
        [groups[place] for place in places],
        estimator,
        None if tokens is None else [tokens[place] for place in places],
    )
    spread = [0.0] * len(scores)
    for place, value in zip(places, found, strict=True):
        spread[place] = value
    return Handled(spread, in_loss)


def without_lost(
    rewards: Sequence[float | None],
    groups: Sequence[Hashable],
    lost: Sequence[bool] | None = None,
    *,
    estimator: Estimator = Estimator.GRPO,
    tokens: Sequence[float] | None = None,
    divide_by: Literal["all", "kept"] = "all",
) -> list[float]:
    """Return advantages that lost samples have no part in; their own are 0.

    A reward of None or NaN is lost too, and so is a single sample among groups of several: its
    siblings' rows were dropped. A trainer divides the loss by all samples; with ``divide_by`` kept
    the advantages make up for those that are out of it. ``tokens`` says how many each sample has.
    Raises ValueError for an infinite reward.
    """
    stated = [False] * len(rewards) if lost is None else lost
    gone: list[bool] = []
    scores: list[float] = []
    for place, (reward, is_stated) in enumerate(zip(rewards, stated, strict=True)):
        if is_stated or reward is None or math.isnan(reward):
            gone.append(True)
            scores.append(0.0)
            continue
        if math.isinf(reward):
            raise ValueError(f"rewards[{place}] is {reward}; a lost sample has None or NaN")
        gone.append(False)
        scores.append(float(reward))
    sizes = Counter(groups)
    if max(sizes.values(), default=0) > 1:
        gone = [flag or sizes[group] == 1 for flag, group in zip(gone, groups, strict=True)]

    found = handled(scores, groups, gone, Handling.EXCLUDE, estimator, tokens=tokens)
    if divide_by == "all":
        return found.advantages
    weights = [1.0] * len(scores) if tokens is None else list(tokens)
    kept = sum(weight for weight, keep in zip(weights, found.in_loss, strict=True) if keep)
    return [value * sum(weights) / kept if kept else 0.0 for value in found.advantages]


def push(advantages: Sequence[float], marked: Sequence[bool]) -> float:
    """Return the net push on what some samples do: the mean of advantage x (does it - share that
    does it).

    Positive if the step makes it more likely. The difference between the means of both kinds would
    hide that a mask leaves fewer samples of one kind in the loss.
    """
    if not advantages:
        return 0.0
    share = sum(marked) / len(marked)
    pushes = [value * (mark - share) for value, mark in zip(advantages, marked, strict=True)]
    return sum(pushes) / len(advantages)
