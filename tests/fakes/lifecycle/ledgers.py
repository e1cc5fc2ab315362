"""Ledgers whose events are kept."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.lifecycle import (
    CreateRefusal,
    LifecycleEvent,
    Sandbox,
    SandboxLedger,
    read_lifecycle,
)


class Watched:
    """A ledger with the events that it wrote."""

    def __init__(self, seed: int = 0, **model: Any) -> None:
        self.events: list[LifecycleEvent] = []
        self.ledger = SandboxLedger(read_lifecycle(model), seed=seed, note=self.events.append)

    def create(self, now: float, **options: Any) -> Sandbox:
        """Create a sandbox that is not refused."""
        sandbox = self.ledger.create(now, **options)
        assert isinstance(sandbox, Sandbox)
        return sandbox

    def refused(self, now: float, **options: Any) -> CreateRefusal:
        """Ask for a sandbox that is refused."""
        refusal = self.ledger.create(now, **options)
        assert isinstance(refusal, CreateRefusal)
        return refusal

    def happened(self) -> list[tuple[float, str]]:
        """When what happened."""
        return [(event["at"], event["event"].removeprefix("sandbox_")) for event in self.events]
