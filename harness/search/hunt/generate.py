"""Draws scenarios: a pure function of a random stream. Each case leaves some features out (swarm testing).

What is drawn for a field is declared with the field. Here is only what goes across the parts of a scenario.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from sfusion.fakes.fields import Drawn
from sfusion.harness.lab.scenarios.base import Data, declared, parts_below
from sfusion.harness.lab.scenarios.drawing import Drawing
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.program import PROGRAM_FEATURES
from sfusion.harness.lab.scenarios.tools import TOOL_KEYS
from sfusion.harness.search.hunt.expectations import is_clear

_BESIDE = ("gentle_faults", "plain_fault", "faults", "two_faults", "events", "two_events", "kills", "instances")
"""Features that several declarations share, or that a function asks for."""


def _features() -> tuple[str, ...]:
    fields = [*Scenario.model_fields.values()]
    fields += [field for _, _, part in parts_below(Scenario) for field in part.model_fields.values()]
    stated = [*(declared(field.metadata, Drawn) for field in fields), *TOOL_KEYS.values()]
    named = [name for drawn in stated if isinstance(drawn, Drawn) for name in drawn.when]
    return tuple(dict.fromkeys([*named, *PROGRAM_FEATURES, *_BESIDE]))


FEATURES = _features()
"""What a case may have; each case has a part of them."""


def generate(draw: random.Random, keys: frozenset[str] | None = None) -> Data:
    """Return a scenario without name and promises. ``keys`` are those of the tool's config; None for our own tool."""
    while True:
        data = _generate(draw, keys)
        if valid(data):
            return copy.deepcopy(data)  # what was drawn belongs to the declarations, and a mutation changes it


def _generate(draw: random.Random, keys: frozenset[str] | None) -> Data:
    # How many features a case has differs as well: some have hardly any, some nearly all.
    density = draw.choice((0.1, 0.25, 0.25, 0.4, 0.6))
    features = {name for name in FEATURES if draw.random() < density}
    if not draw.randrange(4):
        features = {draw.choice(FEATURES)}
    drawing = Drawing(draw, features, keys)
    drawing.part(Scenario, drawing.data)
    return drawing.data


def valid(data: Mapping[str, Any]) -> bool:
    """Can this be a scenario whose runs can be judged?"""
    try:
        return is_clear(named(data))
    except ValueError:
        return False


def named(data: Mapping[str, Any], **more: Any) -> Scenario:
    """Return the scenario that these data are; raise ValueError if they are none."""
    whole = {"scenario": "hunted", "about": "a hunted case", "promises": ["every_call_ends_once"], **data, **more}
    return Scenario.from_data(whole)
