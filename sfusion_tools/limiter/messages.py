"""What a client and the limiter say to each other; plain tuples, cheap to pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Attach(NamedTuple):
    """The whole state of a client, sent when the limiter may know nothing of it or something old."""

    epoch: int
    """Counts the client's attachments: a poll of an earlier one hears nothing any more."""
    held: tuple[str, ...]
    waiting: tuple[tuple[int, int | None], ...]
    """(waiter, ticket if it ever got one), in the order in which the waiters came."""


class Batch(NamedTuple):
    """All that happened at one client since its last batch."""

    client: str
    attach: Attach | None = None
    acquire: tuple[int, ...] = ()
    """Numbers of new waiters, in the order in which they came."""
    cancel: tuple[int, ...] = ()
    handed: tuple[tuple[int, str], ...] = ()
    """(waiter, permit): waiters of the delegated run served with a permit this client held already."""
    release: tuple[str, ...] = ()
    renew: tuple[str, ...] = ()
    succeeded: int = 0
    throttled: int = 0
    bye: bool = False


class Reply(NamedTuple):
    """The limiter's answer to a batch or to a long poll."""

    incarnation: str
    version: int
    """Rises with every reply; the ``run`` of the highest version is the one that counts."""
    unknown: bool = False
    """The limiter does not know this client (any more): it must attach, nothing it said was taken in."""
    grants: tuple[tuple[int, str], ...] = ()
    """(waiter, permit); each grant is told exactly once."""
    tickets: tuple[tuple[int, int], ...] = ()
    """(waiter, ticket) of those who joined the line and still stand in it."""
    run: int = 0
    """Waiters of this client with a ticket up to this one are first in line, so it may serve them itself."""
    lost: tuple[str, ...] = ()
    """Permits the client named that are not its own any more."""
    lease: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a limiter at one moment."""

    rate_limit: int
    width: int
    """How many permits may be out now: rate_limit, or less while an adaptive limiter is narrowed."""
    in_use: int
    waiting: int
    holders: dict[str, int]
    """Permits by client."""
    waiters: dict[str, int]
    """Waiters by client."""
    granted: int
    handed_on: int
    expired: int
    """Permits that came back because their lease ran out."""
    fenced: int
    """Releases refused because the permit was not the caller's any more."""
    cancelled: int
    dropped: int
    """Waiters that left the line because their client died."""
    learning: bool
    """True after a restart, while nothing is granted until the holders have reported."""
    incarnation: str
    lease: float
    per_second: float | None
    adaptive: bool
