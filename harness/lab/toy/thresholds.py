"""From which share of lost calls on training turns away from the tool.

The closed forms are those of two behaviours whose skills stand still. Where skills learn, the
threshold depends on how fast and for how long, so it is told as a range.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from sfusion_tools.advantages import Handling

from ..scenarios.training import TrainingPart
from .expectation import expected


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


_MOST_STEPS = 400
"""A longer training is followed so far (chosen: a range is made of dozens of trainings)."""
_HALVINGS = 7
"""A threshold is found to within a percent."""
_FARTHEST = 0.98
"""Nothing is trained on with the tool where all calls are lost."""
_LEARNS = (0.0, 1.0, 2.0)
"""Skills that stand still, learn as they should, or twice as fast."""
_RATES = (0.5, 1.0, 2.0)
"""Factors of the learning rate, or of the number of steps."""


@dataclass(frozen=True)
class Threshold:
    """The share of lost calls from which on the tool is lost; None: at no share."""

    as_set: float | None
    standing_still: float | None
    """If no skill changes, which is what the closed forms assume."""
    lowest: float | None
    """Over skills that stand still or learn twice as fast, at half and twice the rate."""
    highest: float | None


def threshold(part: TrainingPart, handling: Handling) -> Threshold:
    """Find from which share on training loses the tool, and what that depends on."""
    short = part.model_copy(update={"steps": min(part.steps, _MOST_STEPS)})
    found = {
        (learns, rate): turning_share(_changed(short, learns, rate), handling)
        for learns, rate in itertools.product(_LEARNS, _RATES)
    }
    known = [share for share in found.values() if share is not None]
    return Threshold(
        as_set=found[1.0, 1.0],
        standing_still=found[0.0, 1.0],
        lowest=min(known, default=None),
        highest=None if None in found.values() else max(known),
    )


def _changed(part: TrainingPart, learns: float, rate: float) -> TrainingPart:
    behaviours = [
        behaviour.model_copy(update={"learns": learns * behaviour.learns})
        for behaviour in part.behaviours
    ]
    changes = {"behaviours": behaviours, "learning_rate": rate * part.learning_rate}
    return part.model_copy(update=changes)


def turning_share(part: TrainingPart, handling: Handling) -> float | None:
    """Return the share of lost calls above which P(tool) ends below half of what it is without
    faults; None if it does at no share."""
    half = expected(part, 0.0, handling)[-1].tool / 2
    low = 0.0
    high = _FARTHEST
    if expected(part, high, handling)[-1].tool >= half:
        return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if expected(part, middle, handling)[-1].tool < half:
            high = middle
        else:
            low = middle
    return (low + high) / 2
