"""The rules of the limiter: pure, without a clock or I/O; the time comes in with every message.

A *client* is one process or event loop. Its *waiters* stand in one line with everybody else's, by *ticket*; a grant
gives the first of them a *permit*, which lives for one *lease* unless renewed. Permits are fungible: a client whose
waiters are the first in line may serve them with permits it holds already (the *run* it is told of), because that
is exactly what the limiter would do. Nothing that a client says late can raise the number of permits over the
limit: a permit that expired is fenced, and what a restarted limiter does not know it learns before it grants.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sfusion_tools.limiter.messages import Attach, Batch, Reply, Snapshot
from sfusion_tools.limiter.pace import Bucket, Width
from sfusion_tools.limiter.settings import LimiterSettings

Observer = Callable[[str, str, dict[str, object]], None]
"""Hears (event, client, facts) of everything that changes who waits and who holds."""

LONGEST_SCAN = 256
"""How far the line is read to find out how long a client's run is; a longer run is told bit by bit."""


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
    news: bool = False


@dataclass(slots=True)
class _Permit:
    client: _Client
    expires: float


class LimiterCore:
    """Permits, leases and the line. ``unleased`` clients keep their permits until they release them."""

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
        """Start empty, or after a restart ``learn_from`` the clients of the one before (None: nobody knows which)."""
        self.settings = settings
        self._observer = observer
        self.incarnation = incarnation
        self._next_ticket = first_ticket
        self._next_permit = 1
        self._version = 0
        self._unleased = frozenset(unleased)
        self._clients: dict[str, _Client] = {}
        self._line: OrderedDict[int, tuple[_Client, int]] = OrderedDict()
        self._permits: OrderedDict[str, _Permit] = OrderedDict()  # leased ones in order of expiry
        self._kept: dict[str, _Permit] = {}  # those of unleased clients
        self._ready: dict[str, None] = {}
        self._granted = self._handed = self._expired = self._fenced = self._cancelled = self._dropped = 0
        self._width = Width(settings.rate_limit)
        self._unheard = None if learn_from is None else set(learn_from)
        self._learning_until = -math.inf if self._unheard == set() else now + settings.lease
        self._bucket = self._new_bucket(now, tokens=0.0 if self._learning_until > now else None)

    def exchange(self, now: float, batch: Batch) -> Reply:
        """Take in what happened at a client, grant what can be granted, and answer."""
        self._expire(now)  # first: what comes too late must not be taken in
        client = self._hear(now, batch.client)
        lost: list[str] = []
        joined: list[int] = []
        if batch.bye:
            self.forget(batch.client)
        elif batch.attach is not None:
            self._attach(now, client, batch.attach, lost, joined)
        elif not client.attached:
            return self._reply(now, client)
        for number in batch.cancel:
            self._cancel(client, number)
        for number, permit in batch.handed:
            self._note("handed on", client, waiter=number, ticket=client.tickets.get(number), permit=permit)
            self._leave_line(client, number)
            self._handed += 1
            if not self._renew(now, client, permit):
                lost.append(permit)
        for permit in batch.release:
            if not self._release(client, permit):
                self._fenced += 1
                self._note("fenced", client, permit=permit)
                lost.append(permit)
        lost += [permit for permit in batch.renew if not self._renew(now, client, permit)]
        for number in batch.acquire:
            if number not in client.tickets:
                self._join(client, number, self._take_ticket())
                joined.append(number)
        self._feel(now, batch.succeeded, batch.throttled)
        self.tick(now)
        tickets = tuple((number, client.tickets[number]) for number in joined if number in client.tickets)
        return self._reply(now, client, tickets, tuple(lost))

    def poll(self, now: float, name: str, epoch: int) -> Reply:
        """What the client has not been told yet; nothing to a poll from before its last attachment."""
        self._expire(now)
        client = self._hear(now, name)
        self.tick(now)
        if client.attached and client.epoch != epoch:
            return Reply(self.incarnation, version=0, lease=self.settings.lease)
        return self._reply(now, client)

    def forget(self, name: str) -> None:
        """The client is gone: its waiters leave the line and its permits return."""
        client = self._clients.pop(name, None)
        if client is None:
            return
        self._drop_waiters(client)
        for permit in sorted(client.permits):
            self._release(client, permit)
        if self._unheard is not None:
            self._unheard.discard(name)

    def configure(self, now: float, settings: LimiterSettings) -> None:
        """Apply other limits at once; permits already out stay out."""
        if settings == self.settings:
            return
        pace_changed = (settings.per_second, settings.burst) != (
            self.settings.per_second,
            self.settings.burst,
        )
        self.settings = settings
        self._width.set_ceiling(settings.rate_limit)
        self._note("resized", None, rate_limit=settings.rate_limit)
        if pace_changed:
            self._bucket = self._new_bucket(now, tokens=None)
        self._tell_everyone()
        self.tick(now)

    def tick(self, now: float) -> None:
        """Let leases run out, end the learning after a restart, and grant."""
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
            # It may only have been stalled: when it speaks again it has to attach and say what it believes.
            client.attached = False
            self._dropped += len(client.tickets)
            self._drop_waiters(client)
            if not client.permits:
                del self._clients[client.name]

    def learning_at(self, now: float) -> bool:
        """True while a restarted limiter still waits to hear what is held."""
        if self._learning_until <= now or self._unheard == set():
            if self._learning_until > -math.inf:
                self._learning_until = -math.inf
                self._unheard = set()
                self._sort_line()
            return False
        return True

    def next_deadline(self, now: float) -> float:
        """When the next thing happens by itself; infinity when nothing will."""
        deadline = math.inf
        if self._permits:
            deadline = next(iter(self._permits.values())).expires
        if self._line:
            dying = min((c.seen for c in self._clients.values() if c.leased and c.tickets), default=math.inf)
            deadline = min(deadline, dying + self.settings.lease)
            if self.learning_at(now):
                deadline = min(deadline, self._learning_until)
            elif self._bucket is not None and self._free() > 0:
                deadline = min(deadline, self._bucket.ready_at(now))
        return deadline

    def take_ready(self) -> list[str]:
        """Clients with news since the last call, first come first."""
        ready = list(self._ready)
        self._ready.clear()
        return ready

    def has_news(self, name: str, epoch: int) -> bool:
        """True when a poll has to be answered: a grant, other limits, or the client attached anew or must."""
        client = self._clients.get(name)
        return client is None or not client.attached or client.epoch != epoch or client.news

    def clients(self) -> list[str]:
        """The names of those who are attached."""
        return [client.name for client in self._clients.values() if client.attached]

    def snapshot(self, now: float) -> Snapshot:
        """How things stand."""
        self.tick(now)
        return Snapshot(
            rate_limit=self.settings.rate_limit,
            width=self.width,
            in_use=self.in_use,
            waiting=len(self._line),
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
        """Permits that are out."""
        return len(self._permits) + len(self._kept)

    @property
    def width(self) -> int:
        """Permits that may be out."""
        return self._width.permits if self.settings.adaptive else self.settings.rate_limit

    def _hear(self, now: float, name: str) -> _Client:
        client = self._clients.get(name)
        if client is None:
            client = self._clients[name] = _Client(name, name not in self._unleased, now)
        client.seen = now
        return client

    def _free(self) -> int:
        return self.width - self.in_use

    def _grant(self, now: float) -> None:
        while self._line and self._free() > 0:
            if self._bucket is not None and not self._bucket.take(now):
                return
            ticket, (client, number) = self._line.popitem(last=False)
            del client.tickets[number]
            permit = f"{self.incarnation}-{self._next_permit}"
            self._next_permit += 1
            self._hold(now, client, permit)
            client.grants.append((number, permit))
            self._granted += 1
            self._note("granted", client, waiter=number, ticket=ticket, permit=permit)
            self._tell(client)

    def _hold(self, now: float, client: _Client, permit: str) -> None:
        client.permits.add(permit)
        if client.leased:
            self._permits[permit] = _Permit(client, now + self.settings.lease)
        else:
            self._kept[permit] = _Permit(client, math.inf)

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
        (self._permits if client.leased else self._kept).pop(permit)
        self._note(how, client, permit=permit)
        return True

    def _take_ticket(self) -> int:
        ticket = self._next_ticket
        self._next_ticket += 1
        return ticket

    def _join(self, client: _Client, number: int, ticket: int) -> None:
        client.tickets[number] = ticket
        self._line[ticket] = (client, number)
        self._note("asked", client, waiter=number, ticket=ticket)

    def _leave_line(self, client: _Client, number: int) -> bool:
        ticket = client.tickets.pop(number, None)
        if ticket is None:
            return False
        del self._line[ticket]
        return True

    def _cancel(self, client: _Client, number: int) -> None:
        ticket = client.tickets.get(number)
        if self._leave_line(client, number):
            self._cancelled += 1
            self._note("cancelled", client, waiter=number, ticket=ticket)

    def _attach(self, now: float, client: _Client, attach: Attach, lost: list[str], joined: list[int]) -> None:
        # A grant whose message got lost is not in the client's list: its permit returns, its waiter keeps its place.
        # Who was silent for a whole lease has lost its place: others may have been told that they are first.
        keeps_places = client.attached or self.learning_at(now)
        client.attached = True
        client.epoch = attach.epoch
        client.grants.clear()
        self._tell(client)
        for permit in sorted(client.permits.difference(attach.held)):
            self._release(client, permit)
        for permit in attach.held:
            if self._renew(now, client, permit):
                continue
            if self.learning_at(now):
                self._hold(now, client, permit)
                self._note("learned", client, permit=permit)
            else:
                lost.append(permit)
        standing = {number for number, _ in attach.waiting}
        for number in [n for n in client.tickets if n not in standing]:
            self._note("cancelled", client, waiter=number, ticket=client.tickets[number])
            self._leave_line(client, number)
        for number, ticket in attach.waiting:
            if number not in client.tickets:
                if ticket is None or not keeps_places or ticket in self._line:
                    ticket = self._take_ticket()
                self._join(client, number, ticket)
            joined.append(number)
        self._sort_line()
        if self._unheard is not None:
            self._unheard.discard(client.name)

    def _sort_line(self) -> None:
        for ticket in sorted(self._line):
            self._line.move_to_end(ticket)

    def _drop_waiters(self, client: _Client) -> None:
        for number, ticket in client.tickets.items():
            del self._line[ticket]
            self._note("dropped", client, waiter=number, ticket=ticket)
        client.tickets.clear()

    def _is_dead(self, client: _Client, now: float) -> bool:
        return client.leased and client.seen + self.settings.lease <= now

    def _feel(self, now: float, succeeded: int, throttled: int) -> None:
        if not self.settings.adaptive:
            return
        if succeeded:
            self._width.succeeded(succeeded)
        if throttled and self._width.throttled(now):
            self._tell_everyone()

    def _tell_everyone(self) -> None:
        # A client that serves its own run must hear at once that there are fewer permits now.
        for client in self._clients.values():
            self._tell(client)

    def _tell(self, client: _Client) -> None:
        client.news = True
        self._ready[client.name] = None

    def _note(self, event: str, client: _Client | None, **facts: object) -> None:
        if self._observer is not None:
            self._observer(event, client.name if client is not None else "", facts)

    def _new_bucket(self, now: float, *, tokens: float | None) -> Bucket | None:
        rate = self.settings.per_second
        return None if rate is None else Bucket(rate, self.settings.burst, now=now, tokens=tokens)

    def _run(self, client: _Client) -> int:
        # Permits on top of the limit must drain, tokens per second are counted here, and while learning others may
        # turn out to stand further in front: in these cases nothing is handed on.
        if not client.tickets or self._bucket is not None or self._free() < 0 or self._learning_until > -math.inf:
            return 0
        if len(client.tickets) == len(self._line):
            return next(reversed(self._line))
        run = 0
        for place, (ticket, (owner, _)) in enumerate(self._line.items()):
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
    ) -> Reply:
        for _, permit in client.grants:
            # The lease counts from when the client hears of the grant: it may have waited here to be told.
            self._renew(now, client, permit)
        grants = tuple(client.grants)
        client.grants.clear()
        client.news = False
        self._version += 1
        self._ready.pop(client.name, None)
        return Reply(
            self.incarnation,
            self._version,
            not client.attached,
            grants,
            tickets,
            self._run(client),
            lost,
            self.settings.lease,
        )
