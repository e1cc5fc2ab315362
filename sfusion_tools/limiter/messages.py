"""The messages between clients and the limiter, its record and its snapshot.

Messages are plain tuples, which are cheap to pickle.

A client numbers its requests. The limiter applies a batch once: a second copy gets the same reply,
and one that is older than the client's last gets an empty reply that nobody waits for.
"""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sfusion_tools.limiter.settings import LimiterSettings

PROTOCOL = 4
"""Increases whenever these messages or their meaning change.

The actor of a cluster outlives upgrades of clients.
"""


class Attach(NamedTuple):
    """The full state of a client, sent when what the limiter knows may be missing or stale."""

    held: tuple[str, ...]
    waiting: tuple[tuple[int, int | None], ...]
    """(waiter, its ticket if it has one), in order of arrival."""
    share: str = ""
    protocol: int = PROTOCOL


class Batch(NamedTuple):
    """Everything that happened at one client since its last batch."""

    client: str
    attach: Attach | None = None
    acquire: tuple[int, ...] = ()
    """Numbers of new waiters, in order of arrival."""
    cancel: tuple[int, ...] = ()
    handed: tuple[tuple[int, str], ...] = ()
    """(waiter, permit): waiters of the run, served with a permit that this client held."""
    release: tuple[str, ...] = ()
    renew: tuple[str, ...] = ()
    succeeded: int = 0
    throttled: int = 0
    detach: bool = False
    """The client is gone: its waiters leave the queue and its permits return.

    A batch without a number is applied in any case.
    """
    epoch: int = 0
    """The client's attachment, named by the version of the reply to it.

    Requests of an earlier attachment have no effect.
    """
    number: int = 0


class Poll(NamedTuple):
    """A request to be notified of grants to the attachment ``epoch``.

    It is answered after ``at_most`` seconds at the latest.
    """

    client: str
    epoch: int
    number: int
    at_most: float


class LimiterReply(NamedTuple):
    """The limiter's reply to a batch or to a long poll."""

    incarnation: str
    version: int
    """Increases with every reply; ``run`` and ``lease`` of the highest version count."""
    unknown: bool = False
    """The limiter does not know this client (any more).

    Nothing in the batch was applied, and the client must attach.
    """
    grants: tuple[tuple[int, str], ...] = ()
    """(waiter, permit); each grant is in one reply only."""
    tickets: tuple[tuple[int, int], ...] = ()
    """(waiter, ticket) of waiters that joined the queue and are still in it."""
    run: int = 0
    """Waiters of this client with a ticket up to this one are at the head of the queue.

    The client may serve them itself.
    """
    lost: tuple[str, ...] = ()
    """Permits named in the batch that no longer belong to the client."""
    lease: float = 0.0


def packed(message: Batch | Poll | LimiterReply) -> bytes:
    """Return a message as Ray is given it.

    Bytes go as they are, while a tuple costs a fifth of a round trip.
    """
    return pickle.dumps(message, 5)


def unpacked(data: bytes) -> Any:
    """Return the message that ``packed`` was given."""
    return pickle.loads(data)  # of a process of the same cluster, where Ray unpickles as well


@dataclass(frozen=True, slots=True)
class LimiterRecord:
    """What an actor wrote last.

    It writes before every attachment that it applies, and when its settings change.
    """

    actor: str
    """The id of the actor: the same after a restart by Ray, another for a stranger of its name."""
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


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """One share of a limiter at one moment."""

    in_use: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a limiter at one moment."""

    rate_limit: int
    width: int
    """How many permits may be out now: rate_limit, or fewer while an adaptive one is narrowed."""
    in_use: int
    waiting: int
    holders: dict[str, int]
    """Permits per client."""
    waiters: dict[str, int]
    """Waiters per client."""
    shares: dict[str, ShareSnapshot]
    """By name of the share; the empty name is that of all clients without one."""
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
    """True after a restart, while clients have yet to report what they hold.

    Nothing is granted before.
    """
    incarnation: str
    lease: float
    per_second: float | None
    adaptive: bool
