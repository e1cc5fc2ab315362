"""What the toy learns on average: every update is the expected one, without noise.

Calls are lost independently of each other, and whitening is taken for the group's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sfusion_tools.advantages import Estimator, Handling, advantages

from ..scenarios.training import TrainingPart
from .losses import chance_lost
from .policy import Gradient, ToyPolicy, uses_tool
from .sample import length_of, loss_weight
from .skill import EASE, Skill

_LARGEST_GROUP = 48
"""Larger groups are taken for such a one where a format reward makes three scores (chosen: the
states of a group are counted one by one, and beyond this size a mean hardly moves)."""
_RARE = 1e-12
"""States less likely than this are left out (chosen: far below what is printed)."""


@dataclass(frozen=True)
class ExpectedStep:
    """Where the policy stands after a step."""

    step: int
    p: tuple[float, ...]
    """The probability of each behaviour."""
    right: tuple[float, ...]
    """The chance of each behaviour to be right if no call is lost."""
    healthy: float
    """How often the policy is right on a sandbox that loses nothing."""
    tool: float
    """The probability of using the tool at all."""
    several: float
    """The probability of two calls or more."""


def expected(
    part: TrainingPart, share: float | Sequence[float], handling: Handling | None = None
) -> list[ExpectedStep]:
    """Return what is learned on average if this share of calls is lost; a sequence has a share for
    each step, its last one for all that follow."""
    shares = [share] if isinstance(share, int | float) else list(share)
    if not shares or not all(0 <= number <= 1 for number in shares):
        raise ValueError(f"a share of lost calls is between 0 and 1, found {share}")
    handling = handling or Handling(part.lost)
    policy = ToyPolicy(part)
    usual_length = _mean_length(part, policy.start)
    steps = []
    for step in range(1, part.steps + 1):
        now = shares[min(step, len(shares)) - 1]
        policy.move(_gradient(part, policy, now, handling, usual_length))
        p = policy.p
        found = ExpectedStep(
            step=step,
            p=p,
            right=policy.right,
            healthy=policy.healthy,
            tool=uses_tool(part, p),
            several=uses_tool(part, p, 2),
        )
        steps.append(found)
    return steps


class _End(NamedTuple):
    """One way in which a sample can end."""

    place: int
    """Of its behaviour."""
    chance: float
    score: float
    skill: float
    """What it pushes the skill of its behaviour, per unit of advantage."""
    lost: bool
    """The trainer knows that it was lost."""
    tokens: int
    """How long it is."""


def _ends(part: TrainingPart, policy: ToyPolicy, share: float, ease: float) -> list[_End]:
    found: list[_End] = []
    for place, chance in enumerate(policy.p):
        skill = policy.skills[place]
        found += _ends_of(part, place, chance, skill, share=share, ease=ease)
    return [end for end in found if end.chance > 0]


def _ends_of(
    part: TrainingPart, place: int, p: float, skill: Skill, *, share: float, ease: float
) -> Iterator[_End]:
    """Yield the ends of one behaviour: right or wrong, and each with its calls or without."""
    behaviour = part.behaviours[place]
    gone = chance_lost(behaviour, share)
    right_chance = skill.right(ease)
    for right in (True, False):
        chance = p * (right_chance if right else 1 - right_chance)
        push = skill.score_at(right_chance, right, ease)
        endless = 0.0 if right else behaviour.provokes
        answered = float(right) + part.format_reward
        yield _End(
            place=place,
            chance=chance * (1 - endless) * (1 - gone),
            score=answered,
            skill=push,
            lost=False,
            tokens=length_of(behaviour, gave_up=False),
        )
        yield from _gave_up(part, place, chance=chance * (1 - endless) * gone, push=push, lost=True)
        yield from _gave_up(
            part, place, chance=chance * endless, push=push, lost=part.endless == "lost"
        )


def _gave_up(
    part: TrainingPart, place: int, *, chance: float, push: float, lost: bool
) -> Iterator[_End]:
    """Yield the ends of a sample that got no result: it guesses right, or it gives no answer."""
    if chance <= 0:
        return
    behaviour = part.behaviours[place]
    guess = behaviour.guess
    tokens = length_of(behaviour, gave_up=True)
    answered = 1 + part.format_reward
    for share, score in ((guess, answered), (1 - guess, 0.0)):
        yield _End(
            place=place,
            chance=chance * share,
            score=score,
            skill=push,
            lost=lost,
            tokens=tokens,
        )


def _gradient(
    part: TrainingPart, policy: ToyPolicy, share: float, handling: Handling, usual_length: float
) -> Gradient:
    """Return the expected gradient, the mean over the kinds of questions."""
    eases = EASE if any(behaviour.spread for behaviour in part.behaviours) else (0.0,)
    gradient = Gradient.zero(len(part.behaviours))
    for ease in eases:
        ends = _ends(part, policy, share, ease)
        _add(
            gradient,
            part,
            policy,
            ends=ends,
            handling=handling,
            usual_length=usual_length,
            part_of_all=1 / len(eases),
        )
    return gradient


def _add(
    gradient: Gradient,
    part: TrainingPart,
    policy: ToyPolicy,
    *,
    ends: Sequence[_End],
    handling: Handling,
    usual_length: float,
    part_of_all: float,
) -> None:
    """Add what the samples with one kind of question push."""
    p = policy.p
    kept = sum(end.chance for end in ends if not end.lost)
    by_score = _mean_advantages(part, ends, handling, kept)
    mean_length = sum(end.chance * end.tokens for end in ends)
    scale = part_of_all * _scale(part, handling, kept)
    for end in ends:
        if end.lost and handling is not Handling.ZERO:
            continue
        strength = scale * end.chance * by_score[end.score]
        strength *= loss_weight(part, end.tokens, mean_length, usual_length)
        for place, chance in enumerate(p):
            gradient.choices[place] += strength * ((end.place == place) - chance)
        gradient.skills[end.place] += strength * end.skill


def _scale(part: TrainingPart, handling: Handling, kept: float) -> float:
    """Return by how much dividing by the kept samples enlarges an update."""
    if part.divide_by == "all" or handling is Handling.ZERO:
        return 1.0
    if handling is not Handling.DROP:
        return 1 / max(kept, 1e-9)
    whole = max(kept**part.group, 1e-9)
    # A step of which no group is left moves nothing.
    return (1 - (1 - whole) ** part.prompts) / whole


def _mean_length(part: TrainingPart, p: Sequence[float]) -> float:
    lengths = zip(p, part.behaviours, strict=True)
    return sum(chance * behaviour.tokens for chance, behaviour in lengths)


def _mean_advantages(
    part: TrainingPart, ends: Sequence[_End], handling: Handling, kept: float
) -> dict[float, float]:
    """Return the expected advantage of each score, over what the siblings may have."""
    in_baseline = ends
    if handling not in (Handling.ZERO, Handling.MASK):
        in_baseline = [end for end in ends if not end.lost]
    chances: dict[float, float] = {}
    for end in in_baseline:
        chances[end.score] = chances.get(end.score, 0.0) + end.chance
    total = sum(chances.values())
    if total <= 0:
        return {end.score: 0.0 for end in ends}
    size = part.group
    if len(chances) > 2:
        size = min(size, _LARGEST_GROUP)
    scores = tuple(sorted(chances))
    shares = [chances[score] / total for score in scores]
    estimator = Estimator(part.estimator)
    # The siblings that a sample may have do not depend on its own score.
    siblings = [
        (chance, list(_groups(count - 1, shares)))
        for count, chance in _sizes(size, handling, kept).items()
    ]
    found = {}
    for score in {end.score for end in ends}:
        found[score] = sum(
            chance * _mean_advantage(score, groups, scores, estimator)
            for chance, groups in siblings
        )
    return found


def _sizes(size: int, handling: Handling, kept: float) -> dict[int, float]:
    """Return how many samples of a group are left beside a kept one, with their chances."""
    if handling in (Handling.ZERO, Handling.MASK):
        return {size: 1.0}
    if handling is Handling.DROP:
        return {size: kept ** (size - 1)}
    sizes = {more + 1: chance for more, chance in enumerate(_binomial(size - 1, kept))}
    if size > 1:  # a sample that lost all its siblings is out of the loss
        del sizes[1]
    return {count: chance for count, chance in sizes.items() if chance > _RARE}


def _mean_advantage(
    score: float,
    groups: Sequence[tuple[tuple[int, ...], float]],
    scores: tuple[float, ...],
    estimator: Estimator,
) -> float:
    """Return the expected advantage of a score, given the siblings that it may have."""
    return sum(chance * _advantage(score, scores, counts, estimator) for counts, chance in groups)


def _groups(count: int, shares: Sequence[float]) -> Iterator[tuple[tuple[int, ...], float]]:
    """Yield how often each score may occur among some samples, with the chance of that."""
    first = min(1.0, shares[0])
    rest = sum(shares[1:])
    if rest <= 0:
        yield (count, *[0] * (len(shares) - 1)), 1.0
        return
    others = [share / rest for share in shares[1:]]
    for number, chance in enumerate(_binomial(count, first)):
        if chance < _RARE:
            continue
        if len(others) == 1:
            yield (number, count - number), chance
            continue
        for counts, more in _groups(count - number, others):
            yield (number, *counts), chance * more


def _binomial(count: int, chance: float) -> list[float]:
    """Return the chances of 0 to all hits."""
    return [
        math.comb(count, hits) * chance**hits * (1 - chance) ** (count - hits)
        for hits in range(count + 1)
    ]


@lru_cache(maxsize=100_000)
def _advantage(
    score: float, scores: tuple[float, ...], counts: tuple[int, ...], estimator: Estimator
) -> float:
    others: list[float] = []
    for other, count in zip(scores, counts, strict=True):
        others += [other] * count
    by_group = Estimator.GRPO if estimator is Estimator.REINFORCE_PLUS_PLUS_BASELINE else estimator
    return advantages([score, *others], [0] * (1 + len(others)), by_group)[0]
