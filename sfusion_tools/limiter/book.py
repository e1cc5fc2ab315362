"""The limiter's book: who holds which permit until when, who waits, and who is served next.

The *waiters* of all clients of a share form one queue, ordered by *ticket*; a grant gives the first
of them a *permit*, which lives for one *lease* unless renewed. ``core`` writes down here what the
messages of clients say.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping

from sfusion_tools.limiter.messages import ShareSnapshot, Snapshot
from sfusion_tools.limiter.pace import Bucket, Width
from sfusion_tools.limiter.settings import LimiterSettings
from sfusion_tools.limiter.shares import HeldPermit, KnownClient, ShareQueue, Shares

Observer = Callable[[str, str, dict[str, object]], None]
"""Called with (event, client, facts) for every change of the queue or of the permits."""


class PermitBook:
    """Permits, leases and the queue.

    ``unleased`` clients keep their permits until they release them.
    """

    def __init__(
        self,
        settings: LimiterSettings,
        now: float,
        *,
        incarnation: str = "0",
        first_ticket: int = 1,
        unleased: Mapping[str, tuple[str, ...]] | None = None,
        learn_from: Mapping[str, int] | None = None,
        learn_for: float | None = None,
        observer: Observer | None = None,
    ) -> None:
        """Start empty, or with what a predecessor left.

        ``unleased`` clients come with the permits they hold. Clients in ``learn_from`` (with the
        number of their last attachment) may hold permits: nothing is granted before they have
        reported, or ``learn_for`` seconds (the longest lease that one of them may know; by default
        the present one) have passed.
        """
        self.settings = settings
        self._observer = observer
        self.incarnation = incarnation
        self._next_ticket = first_ticket
        self._next_permit = 1
        # The version of replies begins there too, so that an epoch is never that of another
        # incarnation.
        self._version = first_ticket
        self._unleased = unleased or {}
        self._clients: dict[str, KnownClient] = {}
        self._shares: Shares = Shares()
        self._permits: dict[str, HeldPermit] = {}
        self._expiries: list[tuple[float, str]] = []
        """A heap of permits; an entry may be older than its permit's last renewal."""
        self._no_death_before = math.inf
        """No leased client can have been silent for a lease before this."""
        self._deaths: list[tuple[float, str]] = []
        """A heap of the clients that wait; an entry may be early, but not late."""
        self.updated: dict[str, None] = {}
        """Clients that have an update since ``take_updated``."""
        self._asking: set[str] = set()
        """Clients that ``take`` sent to the queue and whose batch is yet to come."""
        self._counts = dict.fromkeys(
            ("granted", "handed_on", "expired", "fenced", "cancelled", "dropped"), 0
        )
        self._width = Width(settings.rate_limit)
        self._unreported = dict(learn_from or {})
        self._learning = bool(self._unreported)
        self._old_lease = settings.lease if learn_for is None else learn_for
        self._learning_until = now + self._old_lease if self._learning else now
        self._old_lease_until = self._learning_until
        self._bucket = self._new_bucket(now, tokens=0.0 if self._learning else None)
        for name, permits in self._unleased.items():
            for permit in permits:
                self._hold(now, self._client(now, name), permit)

    def configure(self, now: float, settings: LimiterSettings) -> None:
        """Change the settings at once.

        Permits that are out stay out, and keep the lease that they were given.
        """
        before = self.settings
        if settings == before:
            return
        pace_changed = (settings.per_second, settings.burst) != (before.per_second, before.burst)
        self._old_lease = self.longest_lease(now)
        self._old_lease_until = max(self._old_lease_until, now + self.settings.lease)
        self.settings = settings
        self._width.set_ceiling(settings.rate_limit)
        self._record("resized", None, rate_limit=settings.rate_limit)
        if pace_changed:
            self._bucket = self._new_bucket(now, tokens=None)
        self._notify_all()
        self.tick(now)

    def longest_lease(self, now: float) -> float:
        """The longest lease that a client may believe in: a successor must learn for that long."""
        if now < self._old_lease_until:
            return max(self._old_lease, self.settings.lease)
        return self.settings.lease

    def tick(self, now: float) -> None:
        """Expire leases, end the learning phase after a restart, and grant."""
        self._expire(now)
        if not self.learning_at(now):
            self._grant(now)

    def learning_at(self, now: float) -> bool:
        """True while a restarted limiter still waits for clients to report what they hold."""
        if self._learning and (not self._unreported or now >= self._learning_until):
            self._learning = False
            self._unreported.clear()
            for share in self._shares:
                share.sort()
        return self._learning

    def next_deadline(self, now: float) -> float:
        """When something will happen without a message; infinity if nothing will."""
        deadline = self._next_expiry()
        if self._shares.waiting:
            deadline = min(deadline, self._next_waiter_death())
            if self.learning_at(now):
                deadline = min(deadline, self._learning_until)
            elif self._bucket is not None and self._free() > 0:
                deadline = min(deadline, self._bucket.ready_at(now))
        return deadline

    def take_updated(self) -> list[str]:
        """Return the clients with an update since the last call, oldest first."""
        ready = list(self.updated)
        self.updated.clear()
        return ready

    def snapshot(self, now: float) -> Snapshot:
        self.tick(now)
        clients = self._clients.values()
        shares = {
            share.name: ShareSnapshot(in_use=share.out, waiting=len(share.waiters))
            for share in self._shares
        }
        return Snapshot(
            rate_limit=self.settings.rate_limit,
            width=self.width,
            in_use=self.in_use,
            waiting=self._shares.waiting,
            holders={client.name: len(client.permits) for client in clients if client.permits},
            waiters={client.name: len(client.tickets) for client in clients if client.tickets},
            shares=shares,
            **self._counts,
            learning=self.learning_at(now),
            incarnation=self.incarnation,
            lease=self.settings.lease,
            per_second=self.settings.per_second,
            adaptive=self.settings.adaptive,
        )

    @property
    def in_use(self) -> int:
        """How many permits are out."""
        return len(self._permits)

    @property
    def width(self) -> int:
        """How many permits may be out."""
        return self._width.permits if self.settings.adaptive else self.settings.rate_limit

    def _client(self, now: float, name: str) -> KnownClient:
        client = self._clients.get(name)
        if client is None:
            client = KnownClient(
                name=name,
                leased=name not in self._unleased,
                share=self._shares.get(""),
                seen=now,
                lease=self.settings.lease,
            )
            self._clients[name] = client
        return client

    def _issue(self, now: float, client: KnownClient, number: int, ticket: int) -> str:
        permit = f"{self.incarnation}-{self._next_permit}"
        self._next_permit += 1
        self._hold(now, client, permit, number, ticket)
        self._counts["granted"] += 1
        self._record("granted", client, waiter=number, ticket=ticket, permit=permit)
        return permit

    def _hold(
        self,
        now: float,
        client: KnownClient,
        permit: str,
        waiter: int = 0,
        ticket: int | None = None,
    ) -> None:
        client.permits.add(permit)
        client.share.out += 1
        # A grant waits for the client's next poll: it must not expire before a client without polls
        # counts as dead.
        expires = now + max(self.settings.lease, client.lease) if client.leased else math.inf
        if self.learning_at(now):
            # Learned: its owner may believe in it for as long as the predecessor's lease allows.
            expires = max(expires, self._learning_until)
        self._permits[permit] = HeldPermit(client, expires, waiter, ticket)
        if client.leased:
            heapq.heappush(self._expiries, (expires, permit))

    def _renew(self, now: float, client: KnownClient, permit: str) -> bool:
        if permit not in client.permits:
            return False
        held = self._permits[permit]
        held.expires = max(held.expires, now + self.settings.lease)
        return True

    def _release(self, client: KnownClient, permit: str, how: str = "released") -> bool:
        if permit not in client.permits:
            return False
        client.permits.discard(permit)
        client.share.out -= 1
        del self._permits[permit]
        self._record(how, client, permit=permit)
        return True

    def _take_back(self, client: KnownClient, permit: str) -> bool:
        released = self._release(client, permit)
        if not released:
            self._counts["fenced"] += 1
            self._record("fenced", client, permit=permit)
        return released

    def _take_ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        return ticket

    def _enqueue(self, client: KnownClient, number: int, ticket: int) -> None:
        # A ticket that was kept may be from a limiter on another node.
        self._next_ticket = max(self._next_ticket, ticket + 1)
        client.tickets[number] = ticket
        if client.leased and not client.in_deaths:
            self._watch(client)
        self._shares.join(client.share, ticket, (client, number))
        self._record("asked", client, waiter=number, ticket=ticket)

    def _dequeue(self, client: KnownClient, number: int) -> bool:
        ticket = client.tickets.pop(number, None)
        if ticket is None:
            return False
        del client.share.waiters[ticket]
        return True

    def _cancel(self, client: KnownClient, number: int) -> None:
        ticket = client.tickets.get(number)
        if self._dequeue(client, number):
            self._counts["cancelled"] += 1
            self._record("cancelled", client, waiter=number, ticket=ticket)

    def _drop_waiters(self, client: KnownClient) -> None:
        for number, ticket in client.tickets.items():
            del client.share.waiters[ticket]
            self._record("dropped", client, waiter=number, ticket=ticket)
        client.tickets.clear()

    def _free(self) -> int:
        return self.width - self.in_use

    def _next_in_line(self) -> tuple[ShareQueue, int] | None:
        """Return whose turn it is: a share, and the first ticket in its queue."""
        share = self._shares.next(self.width)
        return None if share is None else (share, next(iter(share.waiters)))

    def _grant(self, now: float) -> None:
        """Grant permits as long as there are free ones and somebody waits."""
        while self._free() > 0:
            turn = self._next_in_line()
            if turn is None or not self._take_token(now):
                return
            share, ticket = turn
            client, number = self._shares.serve(share, ticket)
            del client.tickets[number]
            client.grants.append((number, self._issue(now, client, number, ticket)))
            self._notify(client)

    def _take_token(self, now: float) -> bool:
        """Take what a grant costs; False if the limiter has a pace and no token is left."""
        return self._bucket is None or self._bucket.take(now)

    def _set_attached(self, now: float, client: KnownClient, attached: bool) -> None:
        if client.attached is attached:
            return
        several = self._shares.several
        client.attached = attached
        client.share.attached += 1 if attached else -1
        self._no_death_before = min(self._no_death_before, now + client.lease)
        if self._shares.several and not several:
            self._notify_all()  # nobody may serve its own run any more

    def _expire(self, now: float) -> None:
        # The first entry of the heap may be out of date, but never late: it is only looked into if
        # it is due. ``_next_expiry`` then leaves an entry at the top that is up to date.
        while self._expiries and self._expiries[0][0] <= now and self._next_expiry() <= now:
            _, name = heapq.heappop(self._expiries)
            self._release(self._permits[name].client, name, "expired")
            self._counts["expired"] += 1
        if now < self._no_death_before:
            return
        leased = [client for client in self._clients.values() if client.leased]
        for client in leased:
            if client.seen + client.lease <= now:
                self._drop_silent(now, client)
        self._shares.discard_unused()
        self._no_death_before = min(
            (client.seen + client.lease for client in self._clients.values() if client.leased),
            default=math.inf,
        )

    def _drop_silent(self, now: float, client: KnownClient) -> None:
        """Forget the waiters of a client that was silent for a whole lease.

        It may only be stalled: with its next message it has to attach and report its state.
        """
        self._set_attached(now, client, False)
        self._counts["dropped"] += len(client.tickets) + len(client.grants)
        self._drop_waiters(client)
        for _, permit in client.grants:
            self._release(client, permit)  # it was never sent, so nobody uses it
        client.grants.clear()
        self._asking.discard(client.name)
        if not client.permits:
            del self._clients[client.name]

    def _watch(self, client: KnownClient) -> None:
        client.in_deaths = True
        heapq.heappush(self._deaths, (client.seen + client.lease, client.name))

    def _next_waiter_death(self) -> float:
        """When the first client that waits would count as dead.

        As in ``_next_expiry``, messages do not touch the heap.
        """
        while self._deaths:
            due, name = self._deaths[0]
            client = self._clients.get(name)
            if client is not None and client.leased and client.tickets:
                if client.seen + client.lease == due:
                    return due
                heapq.heapreplace(self._deaths, (client.seen + client.lease, name))
            else:
                heapq.heappop(self._deaths)
                if client is not None:
                    client.in_deaths = False
        return math.inf

    def _next_expiry(self) -> float:
        """When the next lease ends.

        Renewals do not touch the heap: an entry that is out of date is replaced here.
        """
        while self._expiries:
            expires, name = self._expiries[0]
            permit = self._permits.get(name)
            if permit is not None and permit.expires == expires:
                return expires
            heapq.heappop(self._expiries)
            if permit is not None:
                heapq.heappush(self._expiries, (permit.expires, name))
        return math.inf

    def _adapt(self, now: float, succeeded: int, throttled: int) -> None:
        if not self.settings.adaptive:
            return
        if succeeded:
            self._width.succeeded(succeeded)
        if throttled and self._width.throttled(now):
            self._notify_all()

    def _new_bucket(self, now: float, *, tokens: float | None) -> Bucket | None:
        rate = self.settings.per_second
        if rate is None:
            return None
        return Bucket(rate, self.settings.burst, now=now, tokens=tokens)

    def _notify_all(self) -> None:
        # A client that serves its own run must know at once that there are fewer permits.
        for client in self._clients.values():
            self._notify(client)

    def _notify(self, client: KnownClient) -> None:
        client.has_update = True
        self.updated[client.name] = None

    def _record(self, event: str, client: KnownClient | None, **facts: object) -> None:
        if self._observer is not None:
            self._observer(event, client.name if client is not None else "", facts)
