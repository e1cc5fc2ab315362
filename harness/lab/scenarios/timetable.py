"""What a scenario does by the clock, whatever its settings: pauses between steps, and outages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from .model import Scenario


@dataclass(frozen=True, slots=True)
class Timetable:
    """Seconds of a scenario that do not depend on how it is played."""

    pauses: float
    """All pauses between steps."""
    outages: tuple[tuple[float, float], ...]
    """From when to when sandboxes fail, however much load they have."""


def timetable_of(scenario: Scenario) -> Timetable:
    load = scenario.load
    return Timetable(
        pauses=load.step_pause * (load.steps - 1) if load is not None else 0.0,
        outages=tuple(_outages(scenario)),
    )


def _outages(scenario: Scenario) -> Iterator[tuple[float, float]]:
    sandbox = scenario.sandbox
    rules = [sandbox.faults, *(instance.faults or [] for instance in sandbox.each.values())]
    for rule in (rule for some in rules for rule in some):
        if rule.between is not None and rule.above_in_flight is None:
            yield rule.between
    for event in scenario.events:
        if event.after is None and (event.crash is not None or event.wedge is not None):
            seconds = math.inf if event.seconds is None else event.seconds
            yield event.at, event.at + seconds
