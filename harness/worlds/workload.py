"""Which call runs which program: a function of the seed and the call's id, never of order or of who asks."""

from __future__ import annotations

from sfusion.fakes.faults.chance import drawer, uniform
from sfusion.harness.scenarios.model import LoadPart
from sfusion.harness.scenarios.program import ProgramPart, Written


class Workload:
    """The calls of a load, by number from 1 on."""

    def __init__(self, load: LoadPart, seed: int) -> None:
        self._load = load
        self._seed = seed
        self._width = max(4, len(str(load.calls)))
        self._total = sum(part.share for part in load.program)

    def name(self, number: int) -> str:
        """The id of a call."""
        return f"c{number:0{self._width}d}"

    def written(self, number: int) -> Written:
        """The program of a call."""
        call = self.name(number)
        return self._part(call).written_for(call, self._seed)

    def think(self, number: int) -> float:
        """The pause of the caller before this call."""
        return self._load.think.sample(drawer(self._seed, "think", self.name(number)))

    def cancelled_after(self, number: int) -> float | None:
        """When its caller gives it up; None when it waits for the end."""
        cancel = self._load.cancel
        call = self.name(number)
        if cancel is None or uniform(self._seed, "cancel", call) >= cancel.share:
            return None
        return cancel.after.sample(drawer(self._seed, "cancel", call))

    def _part(self, call: str) -> ProgramPart:
        parts = self._load.program
        if len(parts) == 1:
            return parts[0]
        left = uniform(self._seed, "program", call) * self._total
        for part in parts:
            left -= part.share
            if left < 0:
                return part
        return parts[-1]
