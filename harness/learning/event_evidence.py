"""What the tool's event log says about trajectories: how many calls each made, and which were
lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sfusion_tools.record import Call


@dataclass(slots=True)
class _Trajectory:
    calls: int = 0
    last: tuple[float, bool] = (float("-inf"), False)
    """When its last call began, and whether it was lost."""
    lost: list[str] = field(default_factory=list)
    """How its lost calls ended."""


class EventLogEvidence:
    """The calls of an event log by trajectory. The order of the lines does not count."""

    def __init__(self) -> None:
        self.calls = 0
        self.unnamed = 0
        """Calls without a trajectory."""
        self.matched = 0
        """Samples with calls in the log."""
        self.shared = 0
        """Samples with the id of another one before them, so that the log cannot tell them
        apart."""
        self._trajectories: dict[str, _Trajectory] = {}
        self._met: set[str] = set()

    def add(self, calls: Iterable[Call]) -> None:
        """Read the calls that a client made."""
        for call in calls:
            if call.source != "client":
                continue
            self.calls += 1
            if not call.trajectory:
                self.unnamed += 1
                continue
            found = self._trajectories.setdefault(call.trajectory, _Trajectory())
            lost = call.outcome is not None and call.outcome.is_infrastructure
            found.calls += 1
            found.last = max(found.last, (call.began, lost))
            if lost and call.outcome is not None:
                found.lost.append(call.outcome.value)

    def meet(self, id: str) -> None:
        """Count a sample of the dump."""
        if id in self._trajectories:
            self.matched += 1
            self.shared += id in self._met
            self._met.add(id)

    def covers(self, id: str, calls: int) -> bool:
        """Are there at least as many calls in the log as the sample shows?"""
        found = self._trajectories.get(id)
        return found is not None and found.calls >= calls

    def calls_of(self, id: str) -> int:
        found = self._trajectories.get(id)
        return 0 if found is None else found.calls

    def lost(self, id: str) -> list[str]:
        """Return how the lost calls of a trajectory ended."""
        found = self._trajectories.get(id)
        return [] if found is None else found.lost

    def last_lost(self, id: str) -> bool:
        return self._trajectories[id].last[1]
