"""A toy that learns: a softmax over a few behaviours, updated by the advantages of a step. Pure.

Every draw is a function of the seed and of what it is drawn for, so a training with faults and its twin without them
differ only by what the faults did. ``simulate`` trains without the stack, ``harness/lab/worlds/training.py`` with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.lab.scenarios.training import BehaviourPart, TrainingPart
from sfusion.harness.learning.advantages import SIGNAL, Estimator, Handling, handled, push


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
        if self.gave_up:
            return False
        return sum(self.results) < self.behaviour.calls

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
        """Return it as a journal has it, with the probabilities of using the tool at all and of several calls."""
        names = [one.name for one in part.behaviours]
        rounded = {name: round(value, 6) for name, value in zip(names, self.p, strict=True)}
        pushes = {name: round(value, 6) for name, value in self.push.items()}
        shares = {key: round(uses_tool(part, self.p, calls), 6) for key, calls in (("tool", 1), ("several", 2))}
        rest = {key: round(value, 6) if isinstance(value, float) else value for key, value in vars(self).items()}
        return {**rest, "p": rounded, **shares, "push": pushes, "trained_push": pushes[part.lost]}


class Toy:
    """The policy and its trainer. Begin a step, let its samples act, then learn from those that ended."""

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
        right, guessed = uniform(self.seed, "right", id) < one.right, uniform(self.seed, "guess", id) < one.guess
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
    mine = [(one, advantage) for one, advantage in zip(samples, advantages, strict=True) if one.group == group]
    agree = len({one.score for one, _ in mine if not one.lost}) < 2
    return agree and any(one.lost for one, _ in mine) and any(abs(advantage) > SIGNAL for _, advantage in mine)


def _never(call: str) -> bool:
    return False


def simulate(
    part: TrainingPart, seed: int, lost: Callable[[str], bool] = _never, *, seen: bool = True
) -> list[TrainedStep]:
    """Train without the stack: ``lost`` says of each call whether it is, and ``seen`` whether the trainer knows."""
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
    return sum(one for one, behaviour in zip(p, part.behaviours, strict=True) if behaviour.calls >= calls)
