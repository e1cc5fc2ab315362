"""What the toy does and how well: the choice between behaviours and the skill of each."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ..scenarios.training import TrainingPart
from .skill import Skill


@dataclass
class Gradient:
    """Where a step pushes the logits of the choice and those of the skills."""

    choices: list[float]
    skills: list[float]

    @classmethod
    def zero(cls, behaviours: int) -> Gradient:
        return cls([0.0] * behaviours, [0.0] * behaviours)


class ToyPolicy:
    """A softmax over the behaviours of a training, and the skill of each."""

    def __init__(self, part: TrainingPart) -> None:
        self.part = part
        total = sum(behaviour.share for behaviour in part.behaviours)
        self.start = [behaviour.share / total for behaviour in part.behaviours]
        self.logits = [math.log(share) for share in self.start]
        self.skills = [Skill.of(behaviour) for behaviour in part.behaviours]
        self.p = self._softmax()
        """The probability of each behaviour."""

    def _softmax(self) -> tuple[float, ...]:
        most = max(self.logits)
        weights = [math.exp(logit - most) for logit in self.logits]
        total = sum(weights)
        return tuple(weight / total for weight in weights)

    @property
    def right(self) -> tuple[float, ...]:
        """The chance of each behaviour to be right if no call is lost."""
        return tuple(skill.mean for skill in self.skills)

    @property
    def healthy(self) -> float:
        """How often the policy is right on a sandbox that loses nothing."""
        return sum(p * right for p, right in zip(self.p, self.right, strict=True))

    def move(self, gradient: Gradient) -> None:
        """Take a step along a gradient, less what holds the policy to its start."""
        part = self.part
        p = self.p
        if part.kl:
            self._hold(gradient, p)
        for place, behaviour in enumerate(part.behaviours):
            self.logits[place] += part.learning_rate * gradient.choices[place]
            more = part.learning_rate * behaviour.learns * gradient.skills[place]
            self.skills[place].logit += more
        self.p = self._softmax()

    def _hold(self, gradient: Gradient, p: Sequence[float]) -> None:
        """Subtract the gradient of the KL divergence from the start."""
        floor = sys.float_info.min  # a behaviour that is never chosen any more has no logarithm
        logs = [math.log(max(now, floor) / start) for now, start in zip(p, self.start, strict=True)]
        divergence = sum(now * log for now, log in zip(p, logs, strict=True))
        for place, now in enumerate(p):
            gradient.choices[place] -= self.part.kl * now * (logs[place] - divergence)
            gradient.skills[place] -= self.part.kl * now * self.skills[place].pull_to_start()


def uses_tool(part: TrainingPart, p: Sequence[float], calls: int = 1) -> float:
    """Return the probability of behaviours with at least this many calls."""
    chances = zip(p, part.behaviours, strict=True)
    return sum(chance for chance, behaviour in chances if behaviour.calls >= calls)
