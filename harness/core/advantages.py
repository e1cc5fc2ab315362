"""Advantages of a step's samples: four estimators as verl 0.9.1 defines them, and what may be done
with lost samples.

A sample is lost if its last tool call was lost, so that its score says nothing about the model.
Groups are given as one key per sample; samples with equal keys are siblings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import StrEnum

_GRPO_EPSILON, _WHITEN_EPSILON = 1e-6, 1e-8
SIGNAL = 1e-6
"""An advantage of at most this size moves nothing."""


class Estimator(StrEnum):
    """How scores become advantages; the names are verl's, but for dr_grpo, which is verl's grpo
    without the std."""

    GRPO = "grpo"
    """(score - mean of the group) / (std of the group + 1e-6)."""
    DR_GRPO = "dr_grpo"
    """score - mean of the group."""
    RLOO = "rloo"
    """score - mean of the siblings."""
    REINFORCE_PLUS_PLUS_BASELINE = "reinforce_plus_plus_baseline"
    """score - mean of the group, whitened over the tokens of the whole step."""


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
    """Return the advantage of each sample. A sample without siblings has the baseline 0, as in
    verl.

    Only whitening uses ``tokens``, how many each sample has in the loss (default: all alike), and
    ``in_loss``.
    """
    sums: dict[Hashable, tuple[int, float]] = {}
    for group, score in zip(groups, scores, strict=True):
        count, total = sums.get(group, (0, 0.0))
        sums[group] = count + 1, total + score
    centred, squares = [], dict.fromkeys(sums, 0.0)
    for group, score in zip(groups, scores, strict=True):
        count, total = sums[group]
        centred.append(score - total / count if count > 1 else score)
        squares[group] += centred[-1] ** 2
    match estimator:
        case Estimator.DR_GRPO:
            return centred
        case Estimator.RLOO:
            others = {group: n / (n - 1) if n > 1 else 1.0 for group, (n, _) in sums.items()}
            return [one * others[group] for group, one in zip(groups, centred, strict=True)]
        case Estimator.GRPO:
            stds = {
                g: math.sqrt(squares[g] / (n - 1)) if n > 1 else 1.0 for g, (n, _) in sums.items()
            }
            return [
                one / (stds[group] + _GRPO_EPSILON)
                for group, one in zip(groups, centred, strict=True)
            ]
    kept = [True] * len(centred) if in_loss is None else in_loss
    weights = [
        float(keep) * (1.0 if tokens is None else tokens[place]) for place, keep in enumerate(kept)
    ]
    return _whitened(centred, weights)


def _whitened(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Shift and scale to mean 0 and variance 1 over tokens; 0 where fewer than two tokens are
    left."""
    total = sum(weights)
    if total <= 1:
        return [0.0] * len(values)
    mean = sum(value * weight for value, weight in zip(values, weights, strict=True)) / total
    squares = sum(
        weight * (value - mean) ** 2 for value, weight in zip(values, weights, strict=True)
    )
    scale = 1 / math.sqrt(squares / (total - 1) + _WHITEN_EPSILON)
    return [
        (value - mean) * scale if weight else 0.0
        for value, weight in zip(values, weights, strict=True)
    ]


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
    count = len(scores)
    if handling in (Handling.ZERO, Handling.FAILED, Handling.PASSED):
        if handling is not Handling.ZERO:
            other = bounds[handling is Handling.PASSED]
            scores = [other if gone else score for score, gone in zip(scores, lost, strict=True)]
        return Handled(advantages(scores, groups, estimator, tokens), [True] * count)
    if handling is Handling.MASK:
        kept = [not gone for gone in lost]
        found = advantages(scores, groups, estimator, tokens, kept)
        return Handled([one if keep else 0.0 for one, keep in zip(found, kept, strict=True)], kept)
    left = Counter(group for group, gone in zip(groups, lost, strict=True) if not gone)
    hit = {group for group, gone in zip(groups, lost, strict=True) if gone}
    if (
        handling is Handling.EXCLUDE
    ):  # verl would give a single one the baseline 0, a push for whatever it did
        hit = {group for group in hit if left[group] == 1}
    kept = [not gone and group not in hit for group, gone in zip(groups, lost, strict=True)]
    places = [place for place, keep in enumerate(kept) if keep]
    few = advantages(
        [scores[place] for place in places],
        [groups[place] for place in places],
        estimator,
        None if tokens is None else [tokens[place] for place in places],
    )
    spread = [0.0] * count
    for place, one in zip(places, few, strict=True):
        spread[place] = one
    return Handled(spread, kept)


def push(advantages: Sequence[float], marked: Sequence[bool]) -> float:
    """Return the net push on what some samples do: the mean of advantage x (does it - share that
    does it).

    Positive if the step makes it more likely. The difference between the means of both kinds would
    hide that a mask leaves fewer samples of one kind in the loss.
    """
    if not advantages:
        return 0.0
    share = sum(marked) / len(marked)
    return sum(one * (mark - share) for one, mark in zip(advantages, marked, strict=True)) / len(
        advantages
    )
