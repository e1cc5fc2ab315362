"""What a limiter leaves to its successor, and what the successor makes of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from sfusion_tools.limiter.messages import Batch
from sfusion_tools.limiter.settings import LimiterSettings


@dataclass(frozen=True, slots=True)
class LimiterRecord:
    """What an actor wrote last: before every attachment that it applied, and when its settings changed."""

    actor: str
    """The id of the actor: the same after a restart by Ray, another one for a stranger with its name."""
    settings: dict[str, Any]
    clients: dict[str, int]
    """Those that may hold permits, with the numbers of their last attachments."""
    lease: float
    """The longest lease that one of them may know."""

    @classmethod
    def of(
        cls,
        actor: str,
        settings: LimiterSettings,
        clients: dict[str, int],
        lease: float,
        attaching: Batch | None = None,
    ) -> LimiterRecord:
        """Make the record of a limiter with these clients, one of which is about to be attached."""
        if attaching is not None:
            name = attaching.client
            clients = {**clients, name: max(clients.get(name, 0), attaching.number)}
        return cls(actor, asdict(settings), clients, lease)


def learning_of(
    record: LimiterRecord | None, settings: LimiterSettings, since_removal: float | None
) -> tuple[dict[str, int], float]:
    """Return which clients a new limiter must learn from before it grants anything, and for how long at most.

    They may believe in their permits for a whole lease after the predecessor ended, which was just now for all we know,
    or when it was removed.
    """
    if record is None:
        return {}, settings.lease
    seconds = max(record.lease, settings.lease) - (since_removal or 0.0)
    return (record.clients, seconds) if seconds > 0 else ({}, settings.lease)
