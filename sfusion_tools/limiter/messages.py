"""The messages between clients and the limiter, plain tuples that are cheap to pickle, its record
and its snapshot.

A client numbers its requests. The limiter applies a batch once: a second copy gets the same reply,
and one that is older than the client's last gets an empty reply that nobody waits for.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from sfusion_tools.exposition import MetricFamily, by_label, render, single
from sfusion_tools.limiter.settings import LimiterSettings

PROTOCOL = 3
"""Increases whenever these messages or their meaning change: the actor of a cluster outlives
upgrades of clients."""


class Attach(NamedTuple):
    """The full state of a client, sent when what the limiter knows of it may be missing or
    stale."""

    held: tuple[str, ...]
    waiting: tuple[tuple[int, int | None], ...]
    """(waiter, its ticket if it has one), in order of arrival."""
    share: str = ""
    weight: float = 1.0
    protocol: int = PROTOCOL


class Batch(NamedTuple):
    """Everything that happened at one client since its last batch."""

    client: str
    attach: Attach | None = None
    acquire: tuple[int, ...] = ()
    """Numbers of new waiters, in order of arrival."""
    cancel: tuple[int, ...] = ()
    handed: tuple[tuple[int, str], ...] = ()
    """(waiter, permit): waiters of the run that were served with a permit this client already
    held."""
    release: tuple[str, ...] = ()
    renew: tuple[str, ...] = ()
    succeeded: int = 0
    throttled: int = 0
    detach: bool = False
    """The client is gone: its waiters leave the queue and its permits return. Without a number,
    in any case."""
    epoch: int = 0
    """The client's attachment, named by the version of the reply to it. Requests of an earlier
    one have no effect."""
    number: int = 0


class Poll(NamedTuple):
    """A request to be notified of grants to the attachment ``epoch``, at the latest after
    ``at_most`` seconds."""

    client: str
    epoch: int
    number: int
    at_most: float


class LimiterReply(NamedTuple):
    """The limiter's reply to a batch or to a long poll."""

    incarnation: str
    version: int
    """Increases with every reply; ``run`` and ``lease`` of the highest version are the ones that
    count."""
    unknown: bool = False
    """The limiter does not know this client (any more): nothing in the batch was applied and it
    must attach."""
    grants: tuple[tuple[int, str], ...] = ()
    """(waiter, permit); each grant is in one reply only."""
    tickets: tuple[tuple[int, int], ...] = ()
    """(waiter, ticket) of waiters that joined the queue and are still in it."""
    run: int = 0
    """Waiters of this client with a ticket up to this one are at the head of the queue: it may
    serve them itself."""
    lost: tuple[str, ...] = ()
    """Permits named in the batch that no longer belong to the client."""
    lease: float = 0.0


def packed(message: Batch | Poll | LimiterReply) -> bytes:
    """Return a message as Ray is given it: bytes go as they are, while a tuple costs a fifth of
    a round trip."""
    return pickle.dumps(message, 5)


def unpacked(data: bytes) -> Any:
    """Return the message that ``packed`` was given."""
    return pickle.loads(data)  # of a process of the same cluster, where Ray unpickles as well


@dataclass(frozen=True, slots=True)
class LimiterRecord:
    """What an actor wrote last: before every attachment that it applied, and when its settings
    changed."""

    actor: str
    """The id of the actor: the same after a restart by Ray, another one for a stranger with its
    name."""
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

    weight: float
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
    """True after a restart, while nothing is granted because clients have yet to report what
    they hold."""
    incarnation: str
    lease: float
    per_second: float | None
    adaptive: bool


def limiter_page(name: str, snapshot: Snapshot) -> str:
    """Return the state of a limiter as a page for Prometheus; counters begin at 0 again when the
    limiter restarts."""
    shares = snapshot.shares.items()
    metrics: dict[str, tuple[str, float | Mapping[str, float]]] = {
        "limit": ("Permits that may be out at most: rate_limit.", snapshot.rate_limit),
        "width": (
            "Permits that may be out now: less while an adaptive limit is narrowed.",
            snapshot.width,
        ),
        "in_use": ("Permits that are out.", snapshot.in_use),
        "waiting": ("Callers that wait for a permit.", snapshot.waiting),
        "lease_seconds": ("How long a permit lives without renewal.", snapshot.lease),
        "learning": (
            "1 after a restart, while clients have yet to report what they hold.",
            snapshot.learning,
        ),
        "granted_total": ("Permits granted.", snapshot.granted),
        "handed_on_total": (
            "Permits that a client passed from one of its callers to the next.",
            snapshot.handed_on,
        ),
        "expired_total": ("Permits that returned because their lease ran out.", snapshot.expired),
        "fenced_total": (
            "Releases refused because the permit no longer belonged to the caller.",
            snapshot.fenced,
        ),
        "cancelled_total": ("Waiters that gave up.", snapshot.cancelled),
        "dropped_total": ("Waiters removed because their client died.", snapshot.dropped),
        "share_weight": (
            "Weight by share; the empty one is that of clients without a share.",
            {key: one.weight for key, one in shares},
        ),
        "share_holds": ("Permits by share.", {key: one.in_use for key, one in shares}),
        "share_waits": ("Waiters by share.", {key: one.waiting for key, one in shares}),
        "client_holds": ("Permits by client.", snapshot.holders),
        "client_waits": ("Waiters by client.", snapshot.waiters),
    }
    return render((_family(key, *rest) for key, rest in metrics.items()), {"limiter": name})


def _family(key: str, help: str, value: float | Mapping[str, float]) -> MetricFamily:
    name = f"sfusion_limiter_{key}"
    if isinstance(value, Mapping):
        return by_label(name, "gauge", help, key.partition("_")[0], value)
    return single(name, "counter" if key.endswith("_total") else "gauge", help, value)
