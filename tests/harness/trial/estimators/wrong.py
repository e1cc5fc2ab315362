"""Advantage estimators that do something wrong with a lost sample.

They were written before the checks of `sfusion judge`, as trainers write them: each has the mistake
that its docstring names, and the signature of some trainer.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Any

EPSILON = 1e-6


def _std(values: Sequence[float]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def _by_group(values: Sequence[float], groups: Sequence[Hashable]) -> dict[Hashable, list[float]]:
    found: dict[Hashable, list[float]] = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        found[group].append(value)
    return found


def masked_only(
    rewards: list[float], groups: list[str], response_mask: list[list[int]]
) -> list[float]:
    """The mask is applied to the result; the lost reward stays in mean and std."""
    siblings = _by_group(rewards, groups)
    found = []
    for reward, group, mask in zip(rewards, groups, response_mask, strict=True):
        mean = statistics.fmean(siblings[group])
        advantage = (reward - mean) / (_std(siblings[group]) + EPSILON)
        found.append(advantage if any(mask) else 0.0)
    return found


def std_of_all(rewards: list[float], group_ids: list[int], valid: list[bool]) -> list[float]:
    """The mean leaves the lost sample out, the std does not."""
    siblings = _by_group(rewards, group_ids)
    kept: dict[Hashable, list[float]] = defaultdict(list)
    for reward, group, fine in zip(rewards, group_ids, valid, strict=True):
        if fine:
            kept[group].append(reward)
    found = []
    for reward, group, fine in zip(rewards, group_ids, valid, strict=True):
        if not fine or len(kept[group]) < 2:
            found.append(0.0)
            continue
        mean = statistics.fmean(kept[group])
        found.append((reward - mean) / (_std(siblings[group]) + EPSILON))
    return found


def divides_by_all(rewards: list[float], uids: list[str], lost: list[bool]) -> list[float]:
    """The sum leaves the lost sample out, but is divided by the size of the whole group."""
    totals: dict[str, float] = defaultdict(float)
    sizes: dict[str, int] = defaultdict(int)
    for reward, uid, gone in zip(rewards, uids, lost, strict=True):
        sizes[uid] += 1
        if not gone:
            totals[uid] += reward
    return [
        0.0 if gone else reward - totals[uid] / sizes[uid]
        for reward, uid, gone in zip(rewards, uids, lost, strict=True)
    ]


def keeps_the_lost(
    scores: list[float], prompt_ids: list[int], valid_mask: list[int]
) -> list[float]:
    """The baseline is right, but the lost sample itself still has an advantage."""
    kept: dict[int, list[float]] = defaultdict(list)
    for score, prompt, fine in zip(scores, prompt_ids, valid_mask, strict=True):
        if fine:
            kept[prompt].append(score)
    found = []
    for score, prompt in zip(scores, prompt_ids, strict=True):
        if len(kept[prompt]) < 2:
            found.append(0.0)
        else:
            found.append(score - statistics.fmean(kept[prompt]))
    return found


def lone_raw(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
    """A sample that has lost all its siblings gets its raw reward."""
    kept: dict[str, list[float]] = defaultdict(list)
    for reward, group, gone in zip(rewards, groups, lost, strict=True):
        if not gone:
            kept[group].append(reward)
    found = []
    for reward, group, gone in zip(rewards, groups, lost, strict=True):
        if gone:
            found.append(0.0)
        elif len(kept[group]) == 1:
            found.append(reward)
        else:
            mean = statistics.fmean(kept[group])
            found.append((reward - mean) / (_std(kept[group]) + EPSILON))
    return found


def rows_by_place(rewards: list[float], num_generations: int) -> list[float]:
    """Groups are slices of a fixed size, so that a dropped row shifts all that follow."""
    found: list[float] = []
    for start in range(0, len(rewards), num_generations):
        group = rewards[start : start + num_generations]
        mean = statistics.fmean(group)
        found += [(reward - mean) / (_std(group) + EPSILON) for reward in group]
    return found


def one_mean_if_uneven(rewards: list[float], n_samples_per_prompt: int) -> list[float]:
    """If the rows do not fill whole groups, the whole batch becomes one group."""
    size = n_samples_per_prompt if len(rewards) % n_samples_per_prompt == 0 else len(rewards)
    found: list[float] = []
    for start in range(0, len(rewards), size):
        group = rewards[start : start + size]
        found += [reward - statistics.fmean(group) for reward in group]
    return found


def refuses_uneven(rewards: list[float], group_size: int) -> list[float]:
    """It raises where rows are missing, and a NaN spreads over its group."""
    if len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not make groups of {group_size}")
    return rows_by_place(rewards, group_size)


def none_is_zero(rewards: list[float | None], groups: list[str]) -> list[float]:
    """A reward of None counts as 0, like a wrong answer."""
    scored = [reward or 0.0 for reward in rewards]
    siblings = _by_group(scored, groups)
    return [
        score - statistics.fmean(siblings[group])
        for score, group in zip(scored, groups, strict=True)
    ]


def nan_to_zero(rewards: list[float], groups: list[str]) -> list[float]:
    """A NaN becomes 0 before the mean is taken."""
    scored = [0.0 if reward is None or math.isnan(reward) else reward for reward in rewards]
    siblings = _by_group(scored, groups)
    return [
        (score - statistics.fmean(siblings[group])) / (_std(siblings[group]) + EPSILON)
        for score, group in zip(scored, groups, strict=True)
    ]


def zero_times_nan(rewards: list[float], groups: list[str], valid: list[float]) -> list[float]:
    """Lost rewards are multiplied by 0, which leaves a NaN a NaN."""
    totals: dict[str, float] = defaultdict(float)
    counts: dict[str, float] = defaultdict(float)
    for reward, group, keep in zip(rewards, groups, valid, strict=True):
        totals[group] += reward * keep
        counts[group] += keep
    found = []
    for reward, group, keep in zip(rewards, groups, valid, strict=True):
        if counts[group] < 2:
            found.append(0.0)
        else:
            found.append((reward - totals[group] / counts[group]) * keep)
    return found


def leave_one_out_of_all(rewards: list[float], index: list[str], mask: list[int]) -> list[float]:
    """Leave-one-out over all siblings, lost ones included."""
    siblings = _by_group(rewards, index)
    found = []
    for reward, group, keep in zip(rewards, index, mask, strict=True):
        others = len(siblings[group]) - 1
        baseline = (sum(siblings[group]) - reward) / others if others else 0.0
        found.append((reward - baseline) * keep)
    return found


def whitens_with_the_lost(
    rewards: list[float], groups: list[str], lost_mask: list[bool]
) -> list[float]:
    """The group's mean leaves lost samples out, the whitening of the batch does not."""
    kept: dict[str, list[float]] = defaultdict(list)
    for reward, group, gone in zip(rewards, groups, lost_mask, strict=True):
        if not gone:
            kept[group].append(reward)
    centred = [
        reward - (statistics.fmean(kept[group]) if kept[group] else 0.0)
        for reward, group in zip(rewards, groups, strict=True)
    ]
    mean = statistics.fmean(centred)
    spread = _std(centred) + 1e-8
    return [
        0.0 if gone else (value - mean) / spread
        for value, gone in zip(centred, lost_mask, strict=True)
    ]


def divides_by_no_one(rewards: list[float], groups: list[str], is_lost: list[bool]) -> list[float]:
    """A group of which every sample is lost divides by zero."""
    kept: dict[str, list[float]] = defaultdict(list)
    for reward, group, gone in zip(rewards, groups, is_lost, strict=True):
        if not gone:
            kept[group].append(reward)
    means = {group: sum(kept[group]) / len(kept[group]) for group in dict.fromkeys(groups)}
    return [
        0.0 if gone or len(kept[group]) < 2 else reward - means[group]
        for reward, group, gone in zip(rewards, groups, is_lost, strict=True)
    ]


def spills_over(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
    """Groups are right by themselves, but a loss anywhere switches to the mean of the batch."""
    if any(lost):
        kept = [reward for reward, gone in zip(rewards, lost, strict=True) if not gone]
        mean = statistics.fmean(kept) if kept else 0.0
        return [0.0 if gone else reward - mean for reward, gone in zip(rewards, lost, strict=True)]
    siblings = _by_group(rewards, groups)
    return [
        reward - statistics.fmean(siblings[group])
        for reward, group in zip(rewards, groups, strict=True)
    ]


def forgets_a_row(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
    """The result has no row for a lost sample, so that later rows get their neighbours' values."""
    kept = [
        (reward, group)
        for reward, group, gone in zip(rewards, groups, lost, strict=True)
        if not gone
    ]
    siblings = _by_group([reward for reward, _ in kept], [group for _, group in kept])
    return [
        reward - statistics.fmean(siblings[group]) if len(siblings[group]) > 1 else 0.0
        for reward, group in kept
    ]


def two_are_too_many(rewards: list[float], groups: list[str], lost: list[bool]) -> list[float]:
    """One lost sample of a group is left out; of several, none is."""
    several = {
        group
        for group in groups
        if sum(gone for gone, other in zip(lost, groups, strict=True) if other == group) == 2
    }
    kept: dict[str, list[float]] = defaultdict(list)
    for reward, group, gone in zip(rewards, groups, lost, strict=True):
        if not gone or group in several:
            kept[group].append(reward)
    return [
        0.0 if gone or len(kept[group]) < 2 else 1e-4 * (reward - statistics.fmean(kept[group]))
        for reward, group, gone in zip(rewards, groups, lost, strict=True)
    ]


WRONG: dict[str, Any] = {
    function.__name__: function
    for function in (
        masked_only, std_of_all, divides_by_all, keeps_the_lost, lone_raw, rows_by_place,
        one_mean_if_uneven, refuses_uneven, none_is_zero, nan_to_zero, zero_times_nan,
        leave_one_out_of_all, whitens_with_the_lost, divides_by_no_one, spills_over,
        forgets_a_row, two_are_too_many,
    )
}  # fmt: skip
