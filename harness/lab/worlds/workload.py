"""Which call runs which program: a function of the seed and the call's id, independent of order and caller."""

from __future__ import annotations

from dataclasses import dataclass

from sfusion.fakes.faults import Distribution
from sfusion.fakes.faults.chance import drawer, uniform
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.parts import LoadPart
from sfusion.harness.lab.scenarios.program import PreparedCall, ProgramPart


@dataclass
class Workload:
    """The calls of a load, numbered from 1. ``scale`` shortens all durations; the draws stay the same."""

    load: LoadPart
    seed: int
    scale: float = 1.0
    default_timeout: float = 30.0

    def __post_init__(self) -> None:
        self._fixed = {part.call: part for part in self.load.program if part.call is not None}
        self._drawn = [part for part in self.load.program if part.call is None]
        self._total = sum(part.share for part in self._drawn)

    @classmethod
    def of(cls, scenario: Scenario, scale: float) -> Workload:
        """Return the workload of a scenario that has a load."""
        assert scenario.load is not None
        return cls(scenario.load, scenario.seed, scale, scenario.default_timeout)

    def prepare(self, number: int) -> PreparedCall:
        """Return a call with its program.

        A program meant to exceed its timeout keeps its length, because timeouts are not scaled.
        """
        call = self.load.call_id(number)
        part = self._part(call)
        whole = part.prepare(call, self.seed)
        if self.scale == 1.0 or whole.seconds > (part.timeout or self.default_timeout):
            return whole
        shorter = Distribution(numbers=(whole.seconds * self.scale,))
        return part.model_copy(update={"seconds": shorter}).prepare(call, self.seed)

    def think(self, number: int) -> float:
        """Return how long the caller pauses before this call."""
        return self.load.think.sample(drawer(self.seed, "think", self.load.call_id(number))) * self.scale

    def cancelled_after(self, number: int) -> float | None:
        """Return when the caller gives up on this call; None if it waits until the end."""
        cancel = self.load.cancel
        call = self.load.call_id(number)
        if cancel is None or uniform(self.seed, "cancel", call) >= cancel.share:
            return None
        return cancel.after.sample(drawer(self.seed, "cancel", call)) * self.scale

    def _part(self, call: str) -> ProgramPart:
        if call in self._fixed:
            return self._fixed[call]
        parts = self._drawn
        if len(parts) == 1:
            return parts[0]
        left = uniform(self.seed, "program", call) * self._total
        for part in parts:
            left -= part.share
            if left < 0:
                return part
        return parts[-1]
