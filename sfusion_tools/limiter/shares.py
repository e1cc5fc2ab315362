"""Who is served next when several jobs use one limiter."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

ROUNDING = 1e-9


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
        """Grants divided by the weight, not counting times without waiters."""

        self._sorted = True

    def add(self, ticket: int, waiter: T) -> None:
        """Add at the end; whoever adds a ticket that belongs further ahead calls ``sort`` afterwards."""
        self._sorted = self._sorted and (not self.waiters or next(reversed(self.waiters)) < ticket)
        self.waiters[ticket] = waiter

    def sort(self) -> None:
        if not self._sorted:
            for ticket in sorted(self.waiters):
                self.waiters.move_to_end(ticket)
        self._sorted = True


class Shares(Generic[T]):
    """The shares that have clients, permits or waiters.

    Each share with waiters has a *part* of the permits, in proportion to its weight. The next permit goes to the share
    with the fewest grants for its weight among those that have less than their part out. So calls of equal length are
    granted by weight at every limit, and a share of longer calls holds no more than its part, rounded up.
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
    def somebody_waits(self) -> bool:
        for share in self._shares.values():  # noqa: SIM110 - half the cost of any()
            if share.waiters:
                return True
        return False

    @property
    def several(self) -> bool:
        """True while clients of more than one share are attached."""
        return len(self._shares) > 1 and sum(share.attached > 0 for share in self) > 1

    def holds_ticket(self, ticket: int) -> bool:
        return any(ticket in share.waiters for share in self)

    def join(self, share: ShareQueue[T], ticket: int, waiter: T) -> None:
        if not share.waiters:
            # No credit for the time without waiters.
            share.turns = max(share.turns, min((s.turns for s in self if s.waiters), default=self._turns))
        share.add(ticket, waiter)

    def next(self, width: int) -> ShareQueue[T] | None:
        """Return the share to be served next, with so many permits in all; None if nobody waits."""
        busy = [share for share in self if share.waiters]
        if len(busy) <= 1:
            return busy[0] if busy else None
        weights = sum(share.weight for share in busy)
        available = width - sum(share.out for share in self if not share.waiters)

        def order(share: ShareQueue[T]) -> tuple[bool, float, int]:
            has_its_part = share.out + ROUNDING >= available * share.weight / weights
            return has_its_part, share.turns, next(iter(share.waiters))

        return min(busy, key=order)

    def serve_newcomer(self, share: ShareQueue[T]) -> None:
        """Count a permit for a caller that need not wait, because nobody does."""
        self._turns = max(share.turns, self._turns)
        share.turns = self._turns + 1 / share.weight

    def serve(self, share: ShareQueue[T], ticket: int) -> T:
        """Remove and return a waiter that gets a permit."""
        self._turns = share.turns
        share.turns += 1 / share.weight
        return share.waiters.pop(ticket)
