"""Who is served next when several jobs use one limiter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class ShareQueue(Generic[T]):
    """The waiters of one share, ordered by ticket, and how many permits it has out."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.weight = 1.0
        self.waiters: OrderedDict[int, T] = OrderedDict()
        self.out = 0
        self.attached = 0
        """Clients of this share that are attached."""
        self.turns = 0.0
        """Grants divided by the weight, not counting times without waiters: decides between equally loaded shares."""

    def sort(self) -> None:
        for ticket in sorted(self.waiters):
            self.waiters.move_to_end(ticket)


class Shares(Generic[T]):
    """The shares that have clients, permits or waiters.

    The next permit goes to the share whose permits out, divided by its weight, are fewest: with a backlog in every
    share, the permits out approach the weights, and a share without any goes first, however long the others' queues.
    """

    def __init__(self) -> None:
        self._shares: dict[str, ShareQueue[T]] = {}
        self._turns = 0.0  # of the share that was served last

    def __iter__(self) -> Iterator[ShareQueue[T]]:
        return iter(self._shares.values())

    def get(self, name: str) -> ShareQueue[T]:
        share = self._shares.get(name)
        if share is None:
            share = self._shares[name] = ShareQueue(name)
        return share

    def discard_unused(self) -> None:
        for share in [s for s in self if not (s.attached or s.out or s.waiters)]:
            del self._shares[share.name]

    @property
    def waiting(self) -> int:
        return sum(len(share.waiters) for share in self)

    @property
    def several(self) -> bool:
        """True while clients of more than one share are attached."""
        return len(self._shares) > 1 and sum(share.attached > 0 for share in self) > 1

    def holds_ticket(self, ticket: int) -> bool:
        return any(ticket in share.waiters for share in self)

    def join(self, share: ShareQueue[T], ticket: int, waiter: T) -> None:
        if not share.waiters:
            share.turns = max(share.turns, self._turns)  # no credit for the time without waiters
        share.waiters[ticket] = waiter

    def next(self) -> ShareQueue[T] | None:
        """Return the share to be served next; None if nobody waits."""
        busy = [share for share in self if share.waiters]
        return busy[0] if len(busy) == 1 else min(busy, key=_load, default=None)

    def serve(self, share: ShareQueue[T], ticket: int) -> T:
        """Remove and return a waiter that gets a permit."""
        self._turns = share.turns
        share.turns += 1 / share.weight
        return share.waiters.pop(ticket)


def _load(share: ShareQueue[T]) -> tuple[float, float, int]:
    return share.out / share.weight, share.turns, next(iter(share.waiters))
