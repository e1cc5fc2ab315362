"""What a toy learns on average if calls are lost independently: thresholds, and the expected update. Pure."""

from __future__ import annotations

import math
from functools import lru_cache

from sfusion.harness.lab.scenarios.training import BehaviourPart, TrainingPart
from sfusion.harness.learning.advantages import Estimator, Handling, advantages
from sfusion.harness.learning.toy import Toy


def zero_threshold(head: float, tool: float) -> float:
    """Return the share of lost calls above which scoring them 0 makes answering from the head the better choice."""
    return max(0.0, 1 - head / tool)


def mask_threshold(head: float, tool: float) -> float:
    """Return the share above which a loss mask alone turns tool users away, when nearly all samples use the tool.

    The baseline is then (1 - f) tool. Users pull with (1 - f) tool f on average, the lost ones with 0, and the head
    with head - (1 - f) tool: both are equal where 1 - f^2 = head / tool.
    """
    return math.sqrt(zero_threshold(head, tool))


def chance_lost(behaviour: BehaviourPart, share: float) -> float:
    """Return the chance that a behaviour gives up because more of its calls are lost than it makes again."""
    if not (calls := behaviour.calls):
        return 0.0
    fine = sum(math.comb(calls - 1 + lost, lost) * share**lost for lost in range(behaviour.again + 1))
    return 1 - fine * (1 - share) ** calls


def expected_p(part: TrainingPart, share: float, handling: Handling | None = None) -> tuple[float, ...]:
    """Return the probabilities at the end if every update is the expected one. Whitening is taken for the group's."""
    toy, handling = Toy(part, 0), handling or Handling(part.lost)
    gone = [chance_lost(one, share) for one in part.behaviours]
    for _ in range(part.steps):
        update = _expected_update(part, toy.p, gone, handling)
        toy.logits = [one + part.learning_rate * more for one, more in zip(toy.logits, update, strict=True)]
    return toy.p


def _expected_update(part: TrainingPart, p: tuple[float, ...], gone: list[float], handling: Handling) -> list[float]:
    behaviours, size, estimator = part.behaviours, part.group, Estimator(part.estimator)
    kept = sum(one * (1 - lost) for one, lost in zip(p, gone, strict=True))
    healthy = [one * (1 - lost) * b.right for one, lost, b in zip(p, gone, behaviours, strict=True)]
    scored = [one + p[at] * gone[at] * behaviours[at].guess for at, one in enumerate(healthy)]
    if handling in (Handling.ZERO, Handling.MASK):
        passed, failed = (_mean_advantage(score, size, sum(scored), estimator) for score in (1.0, 0.0))
    else:
        share = sum(healthy) / kept if kept else 0.0
        sizes = {size: kept ** (size - 1)} if handling is Handling.DROP else _binomial(size - 1, kept, 1)
        if size > 1:  # a sample that lost all its siblings is out of the loss
            sizes.pop(1, None)
        passed, failed = (
            sum(chance * _mean_advantage(score, count, share, estimator) for count, chance in sizes.items())
            for score in (1.0, 0.0)
        )
    if handling is Handling.ZERO:
        pulls = [one * passed + (p[at] - one) * failed for at, one in enumerate(scored)]
    else:
        pulls = [one * passed + (p[at] * (1 - gone[at]) - one) * failed for at, one in enumerate(healthy)]
    scale = 1.0
    if part.divide_by == "kept" and handling is not Handling.ZERO:
        scale = 1 / max(kept, 1e-9)
        if handling is Handling.DROP:  # a step of which no group is left moves nothing
            whole = max(kept**size, 1e-9)
            scale = (1 - (1 - whole) ** part.prompts) / whole
    total = sum(pulls)
    return [scale * (pull - chance * total) for pull, chance in zip(pulls, p, strict=True)]


def _mean_advantage(score: float, size: int, share: float, estimator: Estimator) -> float:
    """Return the expected advantage of a score in a group whose other samples pass with this chance."""
    chances = _binomial(size - 1, share)
    return sum(chance * _advantage(score, passes, size, estimator) for passes, chance in chances.items())


def _binomial(count: int, chance: float, more: int = 0) -> dict[int, float]:
    return {k + more: math.comb(count, k) * chance**k * (1 - chance) ** (count - k) for k in range(count + 1)}


@lru_cache(maxsize=10_000)
def _advantage(score: float, passes: int, size: int, estimator: Estimator) -> float:
    others = [1.0] * passes + [0.0] * (size - 1 - passes)
    by_group = Estimator.GRPO if estimator is Estimator.REINFORCE_PLUS_PLUS_BASELINE else estimator
    return advantages([score, *others], [0] * size, by_group)[0]
