"""The rules of the limiter: no clock and no I/O, the time comes in with every message.

A *client* is one process or event loop. The *waiters* of all clients form one queue, ordered by *ticket*; a grant
gives the first of them a *permit*, which lives for one *lease* unless renewed. Permits are interchangeable: a client
whose waiters are at the head of the queue may serve them with permits it already holds (its *run*), because that is
exactly what the limiter would do. No late message can raise the number of permits above the limit: the release of an
expired permit is refused (fenced), and a restarted limiter learns what is held before it grants anything.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Snapshot
from sfusion_tools.limiter.pace import Bucket, Width
from sfusion_tools.limiter.settings import LimiterSettings

Observer = Callable[[str, str, dict[str, object]], None]
"""Called with (event, client, facts) for every change of the queue or of the permits."""

LONGEST_SCAN = 256
"""How far into the queue a client's run is looked for; the rest of a longer run follows in later replies."""


@dataclass(slots=True)
class _Client:
    name: str
    leased: bool
    seen: float
    tickets: dict[int, int] = field(default_factory=dict)
    permits: set[str] = field(default_factory=set)
    grants: list[tuple[int, str]] = field(default_factory=list)
    attached: bool = False
    epoch: int = 0
    has_update: bool = False


@dataclass(slots=True)
class _Permit:
    client: _Client
    expires: float


class LimiterCore:
    """Permits, leases and the queue. ``unleased`` clients keep their permits until they release them."""

    def __init__(
        self,
        settings: LimiterSettings,
        now: float,
        *,
        incarnation: str = "0",
        first_ticket: int = 1,
        unleased: Iterable[str] = (),
        learn_from: Iterable[str] | None = (),
        observer: Observer | None = None,
    ) -> None:
        """Start empty, or after a restart ``learn_from`` the clients from before it (None: they are not known)."""
        self.settings = settings
        self._observer = observer
        self.incarnation = incarnation
        self._next_ticket = first_ticket
        self._next_permit = 1
        self._version = 0
        self._unleased = frozenset(unleased)
        self._clients: dict[str, _Client] = {}
        self._queue: OrderedDict[int, tuple[_Client, int]] = OrderedDict()
        self._permits: OrderedDict[str, _Permit] = OrderedDict()  # leased ones, in order of expiry
        self._unleased_permits: dict[str, _Permit] = {}
        self._updated: dict[str, None] = {}
        self._granted = self._handed = self._expired = self._fenced = self._cancelled = self._dropped = 0
        self._width = Width(settings.rate_limit)
        self._unreported = None if learn_from is None else set(learn_from)
        self._learning_until = -math.inf if self._unreported == set() else now + settings.lease
        self._bucket = self._new_bucket(now, tokens=0.0 if self._learning_until > now else None)

    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        """Apply what happened at a client, grant what can be granted, and reply."""
        self._expire(now)  # first: a message that comes too late must not be applied
        client = self._heartbeat(now, batch.client)
        lost: list[str] = []
        joined: list[int] = []
        if batch.detach:
            self.detach(batch.client)
        elif batch.attach is not None:
            self._attach(now, client, batch.attach, lost, joined)
        elif not client.attached:
            return self._reply(now, client)
        for number in batch.cancel:
            self._cancel(client, number)
        for number, permit in batch.handed:
            self._record("handed_on", client, waiter=number, ticket=client.tickets.get(number), permit=permit)
            self._dequeue(client, number)
            self._handed += 1
            if not self._renew(now, client, permit):
                lost.append(permit)
        for permit in batch.release:
            if not self._release(client, permit):
                self._fenced += 1
                self._record("fenced", client, permit=permit)
                lost.append(permit)
        lost += [permit for permit in batch.renew if not self._renew(now, client, permit)]
        for number in batch.acquire:
            if number not in client.tickets:
                self._enqueue(client, number, self._take_ticket())
                joined.append(number)
        self._adapt(now, batch.succeeded, batch.throttled)
        self.tick(now)
        tickets = tuple((number, client.tickets[number]) for number in joined if number in client.tickets)
        return self._reply(now, client, tickets, tuple(lost))

    def poll(self, now: float, name: str, epoch: int) -> LimiterReply:
        """Return what the client has not received yet; nothing if the poll is older than its last attachment."""
        self._expire(now)
        client = self._heartbeat(now, name)
        self.tick(now)
        if client.attached and client.epoch != epoch:
            return LimiterReply(self.incarnation, version=0, lease=self.settings.lease)
        return self._reply(now, client)

    def detach(self, name: str) -> None:
        """Remove a client that is gone: its waiters leave the queue and its permits return."""
        client = self._clients.pop(name, None)
        if client is None:
            return
        self._drop_waiters(client)
        for permit in sorted(client.permits):
            self._release(client, permit)
        if self._unreported is not None:
            self._unreported.discard(name)

    def configure(self, now: float, settings: LimiterSettings) -> None:
        """Change the settings at once; permits that are out stay out."""
        if settings == self.settings:
            return
        pace_changed = (settings.per_second, settings.burst) != (
            self.settings.per_second,
            self.settings.burst,
        )
        self.settings = settings
        self._width.set_ceiling(settings.rate_limit)
        self._record("resized", None, rate_limit=settings.rate_limit)
        if pace_changed:
            self._bucket = self._new_bucket(now, tokens=None)
        self._notify_all()
        self.tick(now)

    def tick(self, now: float) -> None:
        """Expire leases, end the learning phase after a restart, and grant."""
        self._expire(now)
        if not self.learning_at(now):
            self._grant(now)

    def _expire(self, now: float) -> None:
        while self._permits:
            name, permit = next(iter(self._permits.items()))
            if permit.expires > now:
                break
            self._release(permit.client, name, "expired")
            self._expired += 1
        for client in [c for c in self._clients.values() if self._is_dead(c, now)]:
            # It may only be stalled: with its next message it has to attach and report its state.
            client.attached = False
            self._dropped += len(client.tickets)
            self._drop_waiters(client)
            if not client.permits:
                del self._clients[client.name]

    def learning_at(self, now: float) -> bool:
        """True while a restarted limiter still waits for clients to report what they hold."""
        if self._learning_until <= now or self._unreported == set():
            if self._learning_until > -math.inf:
                self._learning_until = -math.inf
                self._unreported = set()
                self._sort_queue()
            return False
        return True

    def next_deadline(self, now: float) -> float:
        """When something will happen without a message; infinity if nothing will."""
        deadline = math.inf
        if self._permits:
            deadline = next(iter(self._permits.values())).expires
        if self._queue:
            dying = min((c.seen for c in self._clients.values() if c.leased and c.tickets), default=math.inf)
            deadline = min(deadline, dying + self.settings.lease)
            if self.learning_at(now):
                deadline = min(deadline, self._learning_until)
            elif self._bucket is not None and self._free() > 0:
                deadline = min(deadline, self._bucket.ready_at(now))
        return deadline

    def take_updated(self) -> list[str]:
        """Return the clients with an update since the last call, oldest first."""
        ready = list(self._updated)
        self._updated.clear()
        return ready

    def has_update(self, name: str, epoch: int) -> bool:
        """True when a poll must return: a grant, new settings, or the client attached again or has to."""
        client = self._clients.get(name)
        return client is None or not client.attached or client.epoch != epoch or client.has_update

    def clients(self) -> list[str]:
        return [client.name for client in self._clients.values() if client.attached]

    def snapshot(self, now: float) -> Snapshot:
        self.tick(now)
        return Snapshot(
            rate_limit=self.settings.rate_limit,
            width=self.width,
            in_use=self.in_use,
            waiting=len(self._queue),
            holders={c.name: len(c.permits) for c in self._clients.values() if c.permits},
            waiters={c.name: len(c.tickets) for c in self._clients.values() if c.tickets},
            granted=self._granted,
            handed_on=self._handed,
            expired=self._expired,
            fenced=self._fenced,
            cancelled=self._cancelled,
            dropped=self._dropped,
            learning=self.learning_at(now),
            incarnation=self.incarnation,
            lease=self.settings.lease,
            per_second=self.settings.per_second,
            adaptive=self.settings.adaptive,
        )

    @property
    def in_use(self) -> int:
        """How many permits are out."""
        return len(self._permits) + len(self._unleased_permits)

    @property
    def width(self) -> int:
        """How many permits may be out."""
        return self._width.permits if self.settings.adaptive else self.settings.rate_limit

    def _heartbeat(self, now: float, name: str) -> _Client:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(name, name not in self._unleased, now)
        client.seen = now
        return client

    def _free(self) -> int:
        return self.width - self.in_use

    def _grant(self, now: float) -> None:
        while self._queue and self._free() > 0:
            if self._bucket is not None and not self._bucket.take(now):
                return
            ticket, (client, number) = self._queue.popitem(last=False)
            del client.tickets[number]
            permit = f"{self.incarnation}-{self._next_permit}"
            self._next_permit += 1
            self._hold(now, client, permit)
            client.grants.append((number, permit))
            self._granted += 1
            self._record("granted", client, waiter=number, ticket=ticket, permit=permit)
            self._notify(client)

    def _hold(self, now: float, client: _Client, permit: str) -> None:
        client.permits.add(permit)
        if client.leased:
            self._permits[permit] = _Permit(client, now + self.settings.lease)
        else:
            self._unleased_permits[permit] = _Permit(client, math.inf)

    def _renew(self, now: float, client: _Client, permit: str) -> bool:
        if permit not in client.permits:
            return False
        if client.leased:
            held = self._permits[permit]
            held.expires = max(held.expires, now + self.settings.lease)
            self._permits.move_to_end(permit)
        return True

    def _release(self, client: _Client, permit: str, how: str = "released") -> bool:
        if permit not in client.permits:
            return False
        client.permits.discard(permit)
        (self._permits if client.leased else self._unleased_permits).pop(permit)
        self._record(how, client, permit=permit)
        return True

    def _take_ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        return ticket

    def _enqueue(self, client: _Client, number: int, ticket: int) -> None:
        client.tickets[number] = ticket
        self._queue[ticket] = (client, number)
        self._record("asked", client, waiter=number, ticket=ticket)

    def _dequeue(self, client: _Client, number: int) -> bool:
        ticket = client.tickets.pop(number, None)
        if ticket is None:
            return False
        del self._queue[ticket]
        return True

    def _cancel(self, client: _Client, number: int) -> None:
        ticket = client.tickets.get(number)
        if self._dequeue(client, number):
            self._cancelled += 1
            self._record("cancelled", client, waiter=number, ticket=ticket)

    def _attach(self, now: float, client: _Client, attach: Attach, lost: list[str], joined: list[int]) -> None:
        # A grant whose message was lost is not in the client's list: its permit returns, its waiter keeps its place.
        # A client silent for a whole lease has lost its places: others may already count on being first.
        keeps_places = client.attached or self.learning_at(now)
        client.attached = True
        client.epoch = attach.epoch
        client.grants.clear()
        self._notify(client)
        for permit in sorted(client.permits.difference(attach.held)):
            self._release(client, permit)
        for permit in attach.held:
            if self._renew(now, client, permit):
                continue
            if self.learning_at(now):
                self._hold(now, client, permit)
                self._record("learned", client, permit=permit)
            else:
                lost.append(permit)
        standing = {number for number, _ in attach.waiting}
        for number in [n for n in client.tickets if n not in standing]:
            self._record("cancelled", client, waiter=number, ticket=client.tickets[number])
            self._dequeue(client, number)
        for number, ticket in attach.waiting:
            if number not in client.tickets:
                if ticket is None or not keeps_places or ticket in self._queue:
                    ticket = self._take_ticket()
                self._enqueue(client, number, ticket)
            joined.append(number)
        self._sort_queue()
        if self._unreported is not None:
            self._unreported.discard(client.name)

    def _sort_queue(self) -> None:
        for ticket in sorted(self._queue):
            self._queue.move_to_end(ticket)

    def _drop_waiters(self, client: _Client) -> None:
        for number, ticket in client.tickets.items():
            del self._queue[ticket]
            self._record("dropped", client, waiter=number, ticket=ticket)
        client.tickets.clear()

    def _is_dead(self, client: _Client, now: float) -> bool:
        return client.leased and client.seen + self.settings.lease <= now

    def _adapt(self, now: float, succeeded: int, throttled: int) -> None:
        if not self.settings.adaptive:
            return
        if succeeded:
            self._width.succeeded(succeeded)
        if throttled and self._width.throttled(now):
            self._notify_all()

    def _notify_all(self) -> None:
        # A client that serves its own run must know at once that there are fewer permits.
        for client in self._clients.values():
            self._notify(client)

    def _notify(self, client: _Client) -> None:
        client.has_update = True
        self._updated[client.name] = None

    def _record(self, event: str, client: _Client | None, **facts: object) -> None:
        if self._observer is not None:
            self._observer(event, client.name if client is not None else "", facts)

    def _new_bucket(self, now: float, *, tokens: float | None) -> Bucket | None:
        rate = self.settings.per_second
        return None if rate is None else Bucket(rate, self.settings.burst, now=now, tokens=tokens)

    def _run(self, client: _Client) -> int:
        # Nothing is handed on while permits above the limit drain, with tokens per second (they are counted here), or
        # while learning, when other waiters may turn out to be further ahead.
        if not client.tickets or self._bucket is not None or self._free() < 0 or self._learning_until > -math.inf:
            return 0
        if len(client.tickets) == len(self._queue):
            return next(reversed(self._queue))
        run = 0
        for place, (ticket, (owner, _)) in enumerate(self._queue.items()):
            if owner is not client or place >= LONGEST_SCAN:
                break
            run = ticket
        return run

    def _reply(
        self,
        now: float,
        client: _Client,
        tickets: tuple[tuple[int, int], ...] = (),
        lost: tuple[str, ...] = (),
    ) -> LimiterReply:
        for _, permit in client.grants:
            # The lease counts from when the grant is sent: it may have waited here for the client's poll.
            self._renew(now, client, permit)
        grants = tuple(client.grants)
        client.grants.clear()
        client.has_update = False
        self._version += 1
        self._updated.pop(client.name, None)
        return LimiterReply(
            self.incarnation,
            self._version,
            not client.attached,
            grants,
            tickets,
            self._run(client),
            lost,
            self.settings.lease,
        )
