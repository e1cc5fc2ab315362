"""The rates of a real training, from what was measured of it without faults.

Nothing else is fitted: what the toy says about lost calls is then a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..scenarios.training import TrainingPart
from .expectation import expected
from .policy import uses_tool

_RATES = (0.01, 100.0)
"""Between which factors a rate is searched, the bounds of the fields."""
_HALVINGS = 20
"""Enough for three digits of a factor."""
_ROUNDS = 8
"""The learning rate and the skills change each other's curves; after so many rounds over all of
them the rates of a known training are found within 5 % (see the tests)."""


@dataclass(frozen=True)
class HealthyTraining:
    """A training without lost calls: how it chose at each step, and how well it did at the end."""

    chosen: Sequence[float]
    """The probability of using the tool after each step."""
    right: Mapping[str, float]
    """The chance of each behaviour to be right after the last step; what is not named stands
    still."""
    calls: int = 1
    """What `chosen` counts: behaviours with at least so many calls."""


def fitted(part: TrainingPart, measured: HealthyTraining) -> TrainingPart:
    """Return the training with the learning rate and the `learns` of each behaviour with which,
    without faults, it goes as measured. `share` and `right` of the behaviours are those at the
    start."""
    if len(measured.chosen) != part.steps:
        raise ValueError(
            f"{len(measured.chosen)} steps were measured, the training has {part.steps}"
        )
    for _ in range(_ROUNDS):
        part = _with_rate(part, measured)
        for behaviour in part.behaviours:
            target = measured.right.get(behaviour.name, behaviour.right)
            part = with_learning(part, behaviour.name, target)
    return part


def _with_rate(part: TrainingPart, measured: HealthyTraining) -> TrainingPart:
    """Return it with the learning rate with which the choice goes as measured."""
    low, high = _RATES
    for _ in range(_HALVINGS):
        third = (high / low) ** (1 / 3)
        slower = _distance(_rate(part, low * third), measured)
        faster = _distance(_rate(part, high / third), measured)
        if slower <= faster:
            high = high / third
        else:
            low = low * third
    return _rate(part, math.sqrt(low * high))


def _rate(part: TrainingPart, rate: float) -> TrainingPart:
    return part.model_copy(update={"learning_rate": rate})


def _learns(part: TrainingPart, place: int, learns: float) -> TrainingPart:
    behaviours = list(part.behaviours)
    behaviours[place] = behaviours[place].model_copy(update={"learns": learns})
    return part.model_copy(update={"behaviours": behaviours})


def _distance(part: TrainingPart, measured: HealthyTraining) -> float:
    """Return how far the choice is from the measured one, over all steps."""
    pairs = zip(expected(part, 0.0), measured.chosen, strict=True)
    return sum((uses_tool(part, step.p, measured.calls) - chosen) ** 2 for step, chosen in pairs)


def with_learning(part: TrainingPart, name: str, right: float, share: float = 0.0) -> TrainingPart:
    """Return the training in which one behaviour learns as fast as it must to end with this chance
    to be right, where this share of calls is lost; it stands still if it did not get better.

    A behaviour that is hardly practised without faults shows little of how fast it learns: measure
    it where it is practised, for example with every call lost.
    """
    place = [behaviour.name for behaviour in part.behaviours].index(name)
    return _learns(part, place, _learns_to(part, place, right, share))


def _learns_to(part: TrainingPart, place: int, target: float, share: float) -> float:
    """Return how fast a behaviour must learn to end at a chance; 0 if it did not get better."""
    if target <= part.behaviours[place].right:
        return 0.0
    low, high = _RATES
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        if expected(_learns(part, place, middle), share)[-1].right[place] < target:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
