"""How likely a behaviour loses its calls if calls are lost independently of each other."""

from __future__ import annotations

import math

from ..scenarios.training import BehaviourPart


def call_lost(behaviour: BehaviourPart, share: float) -> float:
    """Return the chance that one call is lost where this share of calls of usual length is: each
    second that a program runs is as dangerous as any other."""
    return 1 - math.pow(1 - share, behaviour.length)


def chance_lost(behaviour: BehaviourPart, share: float) -> float:
    """Return the chance that a behaviour gives up because more of its calls are lost than it makes
    again."""
    calls = behaviour.calls
    if not calls:
        return 0.0
    lost = call_lost(behaviour, share)
    fine = sum(
        math.comb(calls - 1 + again, again) * lost**again for again in range(behaviour.again + 1)
    )
    return 1 - fine * (1 - lost) ** calls
