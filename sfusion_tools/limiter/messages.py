"""The messages between clients and the limiter: plain tuples, cheap to pickle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Attach(NamedTuple):
    """The full state of a client, sent when what the limiter knows of it may be missing or stale."""

    epoch: int
    """Counts the client's attachments; polls of earlier ones receive nothing."""
    held: tuple[str, ...]
    waiting: tuple[tuple[int, int | None], ...]
    """(waiter, its ticket if it has one), in order of arrival."""


class Batch(NamedTuple):
    """Everything that happened at one client since its last batch."""

    client: str
    attach: Attach | None = None
    acquire: tuple[int, ...] = ()
    """Numbers of new waiters, in order of arrival."""
    cancel: tuple[int, ...] = ()
    handed: tuple[tuple[int, str], ...] = ()
    """(waiter, permit): waiters of the run that were served with a permit this client already held."""
    release: tuple[str, ...] = ()
    renew: tuple[str, ...] = ()
    succeeded: int = 0
    throttled: int = 0
    detach: bool = False
    """The client is gone: its waiters leave the queue and its permits return."""


class LimiterReply(NamedTuple):
    """The limiter's reply to a batch or to a long poll."""

    incarnation: str
    version: int
    """Increases with every reply; the ``run`` of the highest version is the one that counts."""
    unknown: bool = False
    """The limiter does not know this client (any more): nothing in the batch was applied and it must attach."""
    grants: tuple[tuple[int, str], ...] = ()
    """(waiter, permit); each grant is sent exactly once."""
    tickets: tuple[tuple[int, int], ...] = ()
    """(waiter, ticket) of waiters that joined the queue and are still in it."""
    run: int = 0
    """Waiters of this client with a ticket up to this one are at the head of the queue: it may serve them itself."""
    lost: tuple[str, ...] = ()
    """Permits named in the batch that no longer belong to the client."""
    lease: float = 0.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a limiter at one moment."""

    rate_limit: int
    width: int
    """How many permits may be out now: rate_limit, or fewer while an adaptive limiter is narrowed."""
    in_use: int
    waiting: int
    holders: dict[str, int]
    """Permits per client."""
    waiters: dict[str, int]
    """Waiters per client."""
    granted: int
    handed_on: int
    expired: int
    """Permits that returned because their lease ran out."""
    fenced: int
    """Releases refused because the permit no longer belonged to the caller."""
    cancelled: int
    dropped: int
    """Waiters removed because their client died."""
    learning: bool
    """True after a restart, while nothing is granted because clients have yet to report what they hold."""
    incarnation: str
    lease: float
    per_second: float | None
    adaptive: bool
