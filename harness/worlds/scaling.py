"""A load in shorter time: the same draws, with durations multiplied by the scenario's time_scale."""

from __future__ import annotations

from sfusion.fakes.faults import Distribution
from sfusion.harness.scenarios.model import LoadPart
from sfusion.harness.scenarios.program import Written
from sfusion.harness.worlds.workload import Workload


class ScaledWorkload(Workload):
    """The calls of a load as they are in a world where time really passes."""

    def __init__(self, load: LoadPart, seed: int, scale: float, default_timeout: float) -> None:
        super().__init__(load, seed)
        self._scale = scale
        self._default_timeout = default_timeout

    def written(self, number: int) -> Written:
        """The program of a call; one that is to run out of its time keeps its length, since timeouts are not scaled."""
        whole = super().written(number)
        part = whole.part
        if self._scale == 1.0 or whole.seconds > (part.timeout or self._default_timeout):
            return whole
        shorter = Distribution(numbers=(whole.seconds * self._scale,))
        return part.model_copy(update={"seconds": shorter}).written_for(whole.call, self._seed)

    def think(self, number: int) -> float:
        """The pause of the caller before this call."""
        return super().think(number) * self._scale

    def cancelled_after(self, number: int) -> float | None:
        """When its caller gives it up."""
        after = super().cancelled_after(number)
        return None if after is None else after * self._scale
