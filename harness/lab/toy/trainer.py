"""The toy and its trainer: draw what the samples of a step do, then learn from those that ended.

Every draw is a function of the seed and of what it is drawn for, so a training with faults and its
twin without them differ only by what the faults did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sfusion_tools.advantages import SIGNAL, Estimator, Handled, Handling, handled, push

from ....fakes.faults.chance import uniform
from ..scenarios.training import BehaviourPart, TrainingPart
from .losses import call_lost
from .policy import Gradient, ToyPolicy, uses_tool
from .sample import ToySample, loss_weights
from .skill import EASE

IsLost = Callable[[str], bool]
"""Whether the call of this name is lost."""


@dataclass(frozen=True)
class TrainedStep:
    """What one step taught."""

    step: int
    p: tuple[float, ...]
    """The probability of each behaviour after the update."""
    right: tuple[float, ...]
    """The chance of each behaviour to be right after the update, if no call is lost."""
    healthy: float
    """How often the policy is right after the update on a sandbox that loses nothing."""
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
        names = [behaviour.name for behaviour in part.behaviours]
        pushes = {name: round(value, 6) for name, value in self.push.items()}
        rest = {
            key: round(value, 6) if isinstance(value, float) else value
            for key, value in vars(self).items()
        }
        return {
            **rest,
            "p": _rounded(names, self.p),
            "right": _rounded(names, self.right),
            "tool": round(uses_tool(part, self.p), 6),
            "several": round(uses_tool(part, self.p, 2), 6),
            "push": pushes,
            "trained_push": pushes[part.lost],
        }


def _rounded(names: Sequence[str], values: Sequence[float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in zip(names, values, strict=True)}


class Toy:
    """The policy and its trainer. Begin a step, let its samples act, then learn from those that
    ended."""

    def __init__(self, part: TrainingPart, seed: int) -> None:
        self.part = part
        self.seed = seed
        self.policy = ToyPolicy(part)
        self.step = 0
        lengths = zip(self.policy.start, part.behaviours, strict=True)
        self._usual_length = sum(share * behaviour.tokens for share, behaviour in lengths)
        self._questions_differ = any(behaviour.spread for behaviour in part.behaviours)

    def begin(self) -> list[ToySample]:
        """Draw what the samples of the next step do."""
        self.step += 1
        p = self.policy.p
        samples = []
        for prompt in range(1, self.part.prompts + 1):
            group = f"s{self.step:03d}-p{prompt}"
            ease = self._ease(group)
            for sibling in range(1, self.part.group + 1):
                samples.append(self._sample(group, sibling, p, ease))
        return samples

    def _ease(self, group: str) -> float:
        """Draw how easy the question of a group is."""
        if not self._questions_differ:
            return 0.0
        return EASE[int(uniform(self.seed, "ease", group) * len(EASE))]

    def _sample(self, group: str, sibling: int, p: Sequence[float], ease: float) -> ToySample:
        id = f"{group}-k{sibling}"
        left = uniform(self.seed, "behaviour", id)
        place = 0
        while place < len(p) - 1 and left >= p[place]:
            left -= p[place]
            place += 1
        behaviour = self.part.behaviours[place]
        right = uniform(self.seed, "right", id) < self.policy.skills[place].right(ease)
        endless = bool(behaviour.provokes) and not right
        if endless:
            endless = uniform(self.seed, "endless", id) < behaviour.provokes
        return ToySample(
            id=id,
            group=group,
            place=place,
            behaviour=behaviour,
            right=right,
            guessed=uniform(self.seed, "guess", id) < behaviour.guess,
            ease=ease,
            endless=endless,
            leaves_endless_out=self.part.endless == "lost",
        )

    def reward(self, sample: ToySample, right: bool) -> float:
        """Return the score of a sample whose answer is right or not."""
        return float(right) + self.part.format_reward * sample.answers

    def learn(self, samples: Sequence[ToySample]) -> TrainedStep:
        """Update by the samples of the step that ended, and return what it taught."""
        scores = [sample.score for sample in samples]
        groups = [sample.group for sample in samples]
        known = [sample.known for sample in samples]
        used = [sample.behaviour.calls > 0 for sample in samples]
        lost = [sample.lost for sample in samples]
        estimator = Estimator(self.part.estimator)
        found = {
            handling: handled(scores, groups, known, handling, estimator) for handling in Handling
        }
        mine = found[Handling(self.part.lost)]
        self.policy.move(self._gradient(samples, mine))
        weights = [abs(advantage) for advantage in mine.advantages]
        on_lost = sum(weight for weight, gone in zip(weights, lost, strict=True) if gone)
        unseen = [gone and not seen for gone, seen in zip(lost, known, strict=True)]
        return TrainedStep(
            step=self.step,
            p=self.policy.p,
            right=self.policy.right,
            healthy=self.policy.healthy,
            samples=len(samples),
            score=sum(scores) / len(samples) if samples else 0.0,
            calls=sum(len(sample.results) for sample in samples),
            lost_calls=sum(sample.lost_calls for sample in samples),
            lost=sum(lost),
            unseen=sum(unseen),
            lost_weight=on_lost / sum(weights) if any(weights) else 0.0,
            only_lost=sum(_only_lost(samples, mine, group) for group in dict.fromkeys(groups)),
            push={
                handling.value: push(outcome.advantages, used)
                for handling, outcome in found.items()
            },
        )

    def _gradient(self, samples: Sequence[ToySample], handled: Handled) -> Gradient:
        """Add up what each sample in the loss pushes: its choice, and the skill of what it did.

        A lost sample's attempt was right or wrong all the same: its call's tokens stand in the
        loss with the advantage of the score that the loss gave it, whatever they say. On average
        over many lost samples that moves no skill, in one step it is noise.
        """
        p = self.policy.p
        gradient = Gradient.zero(len(p))
        divisor = handled.divisor(self.part.divide_by == "kept")
        tokens = [sample.tokens for sample in samples]
        weights = loss_weights(self.part, tokens, self._usual_length)
        for sample, advantage, weight in zip(samples, handled.advantages, weights, strict=True):
            if not advantage:
                continue
            strength = weight * advantage / divisor
            for place, chance in enumerate(p):
                gradient.choices[place] += strength * ((sample.place == place) - chance)
            skill = self.policy.skills[sample.place]
            gradient.skills[sample.place] += strength * skill.score(sample.right, sample.ease)
        return gradient


def _only_lost(samples: Sequence[ToySample], handled: Handled, group: str) -> bool:
    mine = [
        (sample, advantage)
        for sample, advantage in zip(samples, handled.advantages, strict=True)
        if sample.group == group
    ]
    healthy_scores = {sample.score for sample, _ in mine if not sample.lost}
    return (
        len(healthy_scores) < 2
        and any(sample.lost for sample, _ in mine)
        and any(abs(advantage) > SIGNAL for _, advantage in mine)
    )


def _nothing_lost(call: str) -> bool:
    return False


def simulate(
    part: TrainingPart, seed: int, lost: IsLost = _nothing_lost, *, seen: bool = True
) -> list[TrainedStep]:
    """Train without the stack: ``lost`` says of each call whether it is, and ``seen`` whether the
    trainer knows."""
    return _simulate(part, seed, lambda call, behaviour: lost(call), seen=seen)


def simulate_share(
    part: TrainingPart, seed: int, share: float, *, attempts: int = 1, seen: bool = True
) -> list[TrainedStep]:
    """Train without the stack where this share of attempts is lost, independently of each other,
    and a call is lost with all its attempts."""

    def lost(call: str, behaviour: BehaviourPart) -> bool:
        chance = call_lost(behaviour, share)
        return all(uniform(seed, "lost", call, number) < chance for number in range(attempts))

    return _simulate(part, seed, lost, seen=seen)


def _simulate(
    part: TrainingPart, seed: int, lost: Callable[[str, BehaviourPart], bool], *, seen: bool
) -> list[TrainedStep]:
    toy = Toy(part, seed)
    steps = []
    for _ in range(part.steps):
        samples = toy.begin()
        for sample in samples:
            while sample.calls_next:
                gone = sample.endless or lost(sample.next_call, sample.behaviour)
                sample.results.append(not gone)
            sample.score = toy.reward(sample, sample.is_right)
            sample.known = sample.lost and seen
        steps.append(toy.learn(samples))
    return steps
