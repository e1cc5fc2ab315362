"""A toy that learns: a softmax over a few behaviours, updated by the advantages of a step. Pure.

At the end, what it learns on average if calls are lost independently: thresholds, and the expected
update.

Every draw is a function of the seed and of what it is drawn for, so a training with faults and its
twin without them differ only by what the faults did. ``simulate`` trains without the stack,
``harness/lab/worlds/training.py`` with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...fakes.faults.chance import uniform
from ..core.advantages import SIGNAL, Estimator, Handling, advantages, handled, push
from .scenarios.training import BehaviourPart, TrainingPart


@dataclass
class ToySample:
    """One trajectory: what it decided to do, and what became of its calls."""

    id: str
    group: str
    place: int
    """Of its behaviour."""
    behaviour: BehaviourPart
    right: bool
    guessed: bool
    """Whether it is right after it gave up."""
    results: list[bool] = field(default_factory=list)
    """For each call whether the model took its answer for a result."""
    fooled: bool = False
    """The last answer that it took for a result is not what the program printed."""
    lies: int = 0
    """How many such answers it got."""
    aborted: bool = False
    """The trajectory failed as a whole."""
    score: float = 0.0
    known: bool = False
    """The trainer knows that the last call was lost."""

    @property
    def calls_next(self) -> bool:
        """Does it make another call?"""
        return not self.gave_up and sum(self.results) < self.behaviour.calls

    @property
    def gave_up(self) -> bool:
        return self.results.count(False) > self.behaviour.again

    @property
    def lost(self) -> bool:
        """In truth, whatever the trainer knows."""
        return self.gave_up or self.fooled or self.aborted

    @property
    def is_right(self) -> bool:
        """Is its answer right, if it gets no wrong result?"""
        return self.guessed if self.gave_up else self.right

    @property
    def next_call(self) -> str:
        return f"{self.id}.c{len(self.results) + 1}"


@dataclass(frozen=True)
class TrainedStep:
    """What one step taught."""

    step: int
    p: tuple[float, ...]
    """The probability of each behaviour after the update."""
    samples: int
    score: float
    calls: int
    lost_calls: int
    lost: int
    """Samples whose last call was lost, in truth."""
    unseen: int
    """Those that the trainer does not know of."""
    lost_weight: float
    """Share of the weight in the loss (sum of |advantage|) that lost samples carry."""
    only_lost: int
    """Groups with a signal in the loss although their healthy samples agree."""
    push: dict[str, float]
    """Net push on tool use under each handling."""

    def as_data(self, part: TrainingPart) -> dict[str, Any]:
        """Return it as a journal has it, with the probabilities of using the tool at all and of
        several calls."""
        names = [one.name for one in part.behaviours]
        rounded = {name: round(value, 6) for name, value in zip(names, self.p, strict=True)}
        pushes = {name: round(value, 6) for name, value in self.push.items()}
        shares = {
            key: round(uses_tool(part, self.p, calls), 6)
            for key, calls in (("tool", 1), ("several", 2))
        }
        rest = {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in vars(self).items()
        }
        return {**rest, "p": rounded, **shares, "push": pushes, "trained_push": pushes[part.lost]}


class Toy:
    """The policy and its trainer. Begin a step, let its samples act, then learn from those that
    ended."""

    def __init__(self, part: TrainingPart, seed: int) -> None:
        self.part = part
        self.seed = seed
        total = sum(one.share for one in part.behaviours)
        self.logits = [math.log(one.share / total) for one in part.behaviours]
        self.step = 0

    @property
    def p(self) -> tuple[float, ...]:
        most = max(self.logits)
        weights = [math.exp(one - most) for one in self.logits]
        return tuple(one / sum(weights) for one in weights)

    def begin(self) -> list[ToySample]:
        """Draw what the samples of the next step do."""
        self.step += 1
        p, part = self.p, self.part
        return [
            self._sample(f"s{self.step:03d}-p{prompt}", sibling, p)
            for prompt in range(1, part.prompts + 1)
            for sibling in range(1, part.group + 1)
        ]

    def _sample(self, group: str, sibling: int, p: Sequence[float]) -> ToySample:
        id = f"{group}-k{sibling}"
        left, place = uniform(self.seed, "behaviour", id), 0
        while place < len(p) - 1 and left >= p[place]:
            left -= p[place]
            place += 1
        one = self.part.behaviours[place]
        right, guessed = (
            uniform(self.seed, "right", id) < one.right,
            uniform(self.seed, "guess", id) < one.guess,
        )
        return ToySample(id, group, place, one, right, guessed)

    def learn(self, samples: Sequence[ToySample]) -> TrainedStep:
        """Update by the samples of the step that ended, and return what it taught."""
        part, p = self.part, self.p
        scores, groups = [one.score for one in samples], [one.group for one in samples]
        known, used = [one.known for one in samples], [one.behaviour.calls > 0 for one in samples]
        lost = [one.lost for one in samples]
        found = {h: handled(scores, groups, known, h, Estimator(part.estimator)) for h in Handling}
        mine = found[Handling(part.lost)]
        divisor = part.learning_rate / mine.divisor(part.divide_by == "kept")
        for sample, advantage in zip(samples, mine.advantages, strict=True):
            if advantage:
                for place in range(len(p)):
                    self.logits[place] += divisor * advantage * ((sample.place == place) - p[place])
        weight = sum(map(abs, mine.advantages))
        on_lost = sum(abs(one) for one, gone in zip(mine.advantages, lost, strict=True) if gone)
        return TrainedStep(
            self.step,
            self.p,
            len(samples),
            sum(scores) / len(samples) if samples else 0.0,
            sum(len(one.results) for one in samples),
            sum(one.results.count(False) + one.lies for one in samples),
            sum(lost),
            sum(gone and not seen for gone, seen in zip(lost, known, strict=True)),
            on_lost / weight if weight else 0.0,
            sum(_only_lost(samples, mine.advantages, group) for group in dict.fromkeys(groups)),
            {handling.value: push(one.advantages, used) for handling, one in found.items()},
        )


def _only_lost(samples: Sequence[ToySample], advantages: Sequence[float], group: str) -> bool:
    mine = [
        (one, advantage)
        for one, advantage in zip(samples, advantages, strict=True)
        if one.group == group
    ]
    agree = len({one.score for one, _ in mine if not one.lost}) < 2
    return (
        agree
        and any(one.lost for one, _ in mine)
        and any(abs(advantage) > SIGNAL for _, advantage in mine)
    )


def simulate(
    part: TrainingPart,
    seed: int,
    lost: Callable[[str], bool] = lambda call: False,
    *,
    seen: bool = True,
) -> list[TrainedStep]:
    """Train without the stack: ``lost`` says of each call whether it is, and ``seen`` whether the
    trainer knows."""
    toy, steps = Toy(part, seed), []
    for _ in range(part.steps):
        samples = toy.begin()
        for one in samples:
            while one.calls_next:
                one.results.append(not lost(one.next_call))
            one.score = float(one.is_right)
            one.known = one.gave_up and seen
        steps.append(toy.learn(samples))
    return steps


def uses_tool(part: TrainingPart, p: Sequence[float], calls: int = 1) -> float:
    """Return the probability of behaviours with at least this many calls."""
    return sum(
        one for one, behaviour in zip(p, part.behaviours, strict=True) if behaviour.calls >= calls
    )


def zero_threshold(head: float, tool: float) -> float:
    """Return the share of lost calls above which scoring them 0 makes answering from the head the
    better choice."""
    return max(0.0, 1 - head / tool)


def mask_threshold(head: float, tool: float) -> float:
    """Return the share above which a loss mask alone turns tool users away, when nearly all samples
    use the tool.

    The baseline is then (1 - f) tool. Users pull with (1 - f) tool f on average, the lost ones with
    0, and the head with head - (1 - f) tool: both are equal where 1 - f^2 = head / tool.
    """
    return math.sqrt(zero_threshold(head, tool))


def chance_lost(behaviour: BehaviourPart, share: float) -> float:
    """Return the chance that a behaviour gives up because more of its calls are lost than it makes
    again."""
    if not (calls := behaviour.calls):
        return 0.0
    fine = sum(
        math.comb(calls - 1 + lost, lost) * share**lost for lost in range(behaviour.again + 1)
    )
    return 1 - fine * (1 - share) ** calls


def expected_p(
    part: TrainingPart, share: float, handling: Handling | None = None
) -> tuple[float, ...]:
    """Return the probabilities at the end if every update is the expected one. Whitening is taken
    for the group's."""
    toy, handling = Toy(part, 0), handling or Handling(part.lost)
    gone = [chance_lost(one, share) for one in part.behaviours]
    for _ in range(part.steps):
        update = _expected_update(part, toy.p, gone, handling)
        toy.logits = [
            one + part.learning_rate * more for one, more in zip(toy.logits, update, strict=True)
        ]
    return toy.p


def _expected_update(
    part: TrainingPart, p: tuple[float, ...], gone: list[float], handling: Handling
) -> list[float]:
    behaviours, size, estimator = part.behaviours, part.group, Estimator(part.estimator)
    kept = sum(one * (1 - lost) for one, lost in zip(p, gone, strict=True))
    healthy = [one * (1 - lost) * b.right for one, lost, b in zip(p, gone, behaviours, strict=True)]
    scored = [one + p[at] * gone[at] * behaviours[at].guess for at, one in enumerate(healthy)]
    if handling in (Handling.ZERO, Handling.MASK):
        passed, failed = (
            _mean_advantage(score, size, sum(scored), estimator) for score in (1.0, 0.0)
        )
    else:
        share = sum(healthy) / kept if kept else 0.0
        sizes = (
            {size: kept ** (size - 1)}
            if handling is Handling.DROP
            else _binomial(size - 1, kept, 1)
        )
        if size > 1:  # a sample that lost all its siblings is out of the loss
            sizes.pop(1, None)
        passed, failed = (
            sum(
                chance * _mean_advantage(score, count, share, estimator)
                for count, chance in sizes.items()
            )
            for score in (1.0, 0.0)
        )
    if handling is Handling.ZERO:
        pulls = [one * passed + (p[at] - one) * failed for at, one in enumerate(scored)]
    else:
        pulls = [
            one * passed + (p[at] * (1 - gone[at]) - one) * failed for at, one in enumerate(healthy)
        ]
    scale = 1.0
    if part.divide_by == "kept" and handling is not Handling.ZERO:
        scale = 1 / max(kept, 1e-9)
        if handling is Handling.DROP:  # a step of which no group is left moves nothing
            whole = max(kept**size, 1e-9)
            scale = (1 - (1 - whole) ** part.prompts) / whole
    total = sum(pulls)
    return [scale * (pull - chance * total) for pull, chance in zip(pulls, p, strict=True)]


def _mean_advantage(score: float, size: int, share: float, estimator: Estimator) -> float:
    """Return the expected advantage of a score in a group whose other samples pass with this
    chance."""
    chances = _binomial(size - 1, share)
    return sum(
        chance * _advantage(score, passes, size, estimator) for passes, chance in chances.items()
    )


def _binomial(count: int, chance: float, more: int = 0) -> dict[int, float]:
    return {
        k + more: math.comb(count, k) * chance**k * (1 - chance) ** (count - k)
        for k in range(count + 1)
    }


@lru_cache(maxsize=10_000)
def _advantage(score: float, passes: int, size: int, estimator: Estimator) -> float:
    others = [1.0] * passes + [0.0] * (size - 1 - passes)
    by_group = Estimator.GRPO if estimator is Estimator.REINFORCE_PLUS_PLUS_BASELINE else estimator
    return advantages([score, *others], [0] * size, by_group)[0]
