"""What the limiter knows of each client, and of each permit that is out."""

from __future__ import annotations

from dataclasses import dataclass, field

from sfusion_tools.limiter.messages import LimiterReply
from sfusion_tools.limiter.shares import ShareQueue


@dataclass(slots=True)
class KnownClient:
    """One process or event loop that uses the limiter: what it holds, what it waits for, which messages came."""

    name: str
    leased: bool
    share: ShareQueue[Waiter]
    seen: float
    lease: float
    """The lease in the last reply to it: the one that it knows, and by which its silence is judged."""
    tickets: dict[int, int] = field(default_factory=dict)
    in_deaths: bool = False
    """Is it in the heap of clients that wait?"""
    permits: set[str] = field(default_factory=set)
    grants: list[tuple[int, str]] = field(default_factory=list)
    attached: bool = False
    attached_by: int = 0
    """The number of its last attachment."""
    epoch: int = 0
    has_update: bool = False
    last_batch: int = 0
    last_batch_reply: LimiterReply | None = None
    last_poll: int = 0
    last_poll_reply: LimiterReply | None = None


Waiter = tuple[KnownClient, int]
"""A client, and the number that it gave to one of its callers."""


@dataclass(slots=True)
class HeldPermit:
    """A permit that is out, and the waiter that it was granted to."""

    client: KnownClient
    expires: float
    waiter: int
    ticket: int | None
