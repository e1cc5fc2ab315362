"""What the limiter knows of its clients, and who is served next when several jobs use it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from sfusion_tools.limiter.messages import LimiterReply


@dataclass(slots=True)
class KnownClient:
    """One process or event loop that uses the limiter.

    What it holds, what it waits for, and which of its messages came.
    """

    name: str
    leased: bool
    share: ShareQueue
    seen: float
    lease: float
    """The lease in the last reply to it, by which its silence is judged."""
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


class ShareQueue:
    """The waiters of one share, ordered by ticket, and how many permits it has out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waiters: OrderedDict[int, Waiter] = OrderedDict()
        self.out = 0
        self.attached = 0
        """Clients of this share that are attached."""
        self.turns = 0
        """Grants, as if it had always had waiters."""

        self._sorted = True

    def add(self, ticket: int, waiter: Waiter) -> None:
        """Add at the end.

        After adding tickets that belong further ahead, call ``sort``.
        """
        if self.waiters and next(reversed(self.waiters)) > ticket:
            self._sorted = False
        self.waiters[ticket] = waiter

    def sort(self) -> None:
        if not self._sorted:
            for ticket in sorted(self.waiters):
                self.waiters.move_to_end(ticket)
        self._sorted = True


class Shares:
    """The shares that have clients, permits or waiters.

    Each share with waiters has an equal *part* of the permits. The next permit goes to the share
    with the fewest grants among those that have less than their part out. So shares with calls of
    equal length are granted equally many at every limit, and a share of longer calls holds no more
    than its part, rounded up.
    """

    def __init__(self) -> None:
        self._shares: dict[str, ShareQueue] = {}
        self._turns = 0  # of the share that was served last

    def __iter__(self) -> Iterator[ShareQueue]:
        return iter(self._shares.values())

    def get(self, name: str) -> ShareQueue:
        return self._shares.setdefault(name, ShareQueue(name))

    def discard_unused(self) -> None:
        for share in list(self):
            if not (share.attached or share.out or share.waiters):
                del self._shares[share.name]

    @property
    def waiting(self) -> int:
        # Asked for with every permit: a loop calls nothing, a sum calls a generator per share.
        waiting = 0
        for share in self._shares.values():
            waiting += len(share.waiters)
        return waiting

    @property
    def several(self) -> bool:
        """True while clients of more than one share are attached."""
        return len(self._shares) > 1 and sum(share.attached > 0 for share in self) > 1

    def holds_ticket(self, ticket: int) -> bool:
        return any(ticket in share.waiters for share in self)

    def join(self, share: ShareQueue, ticket: int, waiter: Waiter) -> None:
        if not share.waiters:
            # No credit for the time without waiters.
            turns = (rival.turns for rival in self if rival.waiters)
            share.turns = max(share.turns, min(turns, default=self._turns))
        share.add(ticket, waiter)

    def next(self, width: int) -> ShareQueue | None:
        """Return the share to be served next if there are ``width`` permits in all.

        None if nobody waits.
        """
        busy = [share for share in self if share.waiters]
        if len(busy) <= 1:
            return busy[0] if busy else None
        available = width - sum(share.out for share in self if not share.waiters)

        def order(share: ShareQueue) -> tuple[bool, int, int]:
            has_its_part = share.out * len(busy) >= available
            return has_its_part, share.turns, next(iter(share.waiters))

        return min(busy, key=order)

    def serve_newcomer(self, share: ShareQueue) -> None:
        """Count a permit for a caller that need not wait, because nobody does."""
        self._turns = max(share.turns, self._turns)
        share.turns = self._turns + 1

    def serve(self, share: ShareQueue, ticket: int) -> Waiter:
        """Remove and return a waiter that gets a permit."""
        self._turns = share.turns
        share.turns += 1
        return share.waiters.pop(ticket)
