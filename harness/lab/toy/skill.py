"""How well a behaviour is done: a chance to be right that training moves.

The chance is ``best * sigmoid(logit)``: a share ``1 - best`` of the questions cannot be answered
this way at all, the rest is answered with a logit. The logit is moved by the same policy gradient
as the choice between behaviours, because whether an attempt is right is drawn like the choice: by
the tokens that the model samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from ..scenarios.training import BehaviourPart

_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Questions come in five kinds, from hard to easy, equally often (chosen: enough for a bell)."""
EASE = tuple(NormalDist().inv_cdf(quantile) for quantile in _QUANTILES)
"""How easy each kind of question is, in standard deviations."""
_FARTHEST = 60.0
"""No logit is farther from 0 when it is searched for: beyond, a sigmoid is 0 or 1 as a float."""
_HALVINGS = 80
"""More than a float has bits."""


def sigmoid(logit: float) -> float:
    if logit >= 0:
        return 1 / (1 + math.exp(-logit))
    return math.exp(logit) / (1 + math.exp(logit))


@dataclass
class Skill:
    """The chance of one behaviour to be right."""

    best: float
    spread: float
    logit: float
    start: float
    """The logit before training."""

    @classmethod
    def of(cls, behaviour: BehaviourPart) -> Skill:
        logit = _logit_of(behaviour)
        return cls(behaviour.best, behaviour.spread, logit, start=logit)

    def right(self, ease: float) -> float:
        """Return the chance to be right with a question of this ease."""
        return self.best * sigmoid(self.logit + self.spread * ease)

    @property
    def mean(self) -> float:
        """The chance to be right over all questions."""
        if not self.spread:
            return self.right(0.0)
        return sum(self.right(ease) for ease in EASE) / len(EASE)

    def score(self, right: bool, ease: float) -> float:
        """Return the derivative of log P(right or wrong) by the logit: by how much the logit grows
        per unit of advantage."""
        return self.score_at(self.right(ease), right, ease)

    def score_at(self, chance: float, right: bool, ease: float) -> float:
        """Return the score if the chance to be right is known."""
        if self.best == 1:
            return float(right) - chance
        inner = sigmoid(self.logit + self.spread * ease)
        return (float(right) - chance) * (1 - inner) / (1 - chance)

    def pull_to_start(self) -> float:
        """Return the derivative by the logit of how far the skill is from its start (KL)."""
        if self.logit == self.start:
            return 0.0
        inner = sigmoid(self.logit)
        return self.best * inner * (1 - inner) * (self.logit - self.start)


def _logit_of(behaviour: BehaviourPart) -> float:
    """Find the logit with which the behaviour is right as often as it says."""
    share = behaviour.right / behaviour.best if behaviour.best else 0.0
    if share <= 0:
        return -math.inf
    if share >= 1:
        return math.inf
    if not behaviour.spread:
        return math.log(share / (1 - share))
    low = -_FARTHEST
    high = _FARTHEST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        mean = sum(sigmoid(middle + behaviour.spread * ease) for ease in EASE) / len(EASE)
        if mean < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2
