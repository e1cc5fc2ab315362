"""The limiter's half of the protocol: no clock and no I/O, the time comes in with every message.

A *client* is one process or event loop; ``client_core`` holds its half. Permits are
interchangeable: a client whose waiters are at the head of the queue may serve them with permits it
already holds (its *run*), because that is exactly what the limiter would do. No late, lost or
repeated message can raise the number of permits above the limit: the release of an expired permit
is refused (fenced), requests of an earlier attachment have no effect, and a restarted limiter
learns what is held before it grants anything.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from sfusion_tools.limiter.book import PermitBook
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Poll
from sfusion_tools.limiter.shares import KnownClient

LONGEST_SCAN = 256
"""How far into the queue a client's run is looked for. Chosen: a reply stays cheap, and the rest of
a longer run follows in later replies."""


@dataclass(slots=True)
class _Changes:
    """What a batch has changed that its reply has to say."""

    lost: list[str] = field(default_factory=list)
    """Permits named in the batch that no longer belong to the client."""
    joined: list[int] = field(default_factory=list)
    """Waiters that joined the queue."""


class LimiterCore(PermitBook):
    """Applies the messages of clients to the book, each once and in order, and replies."""

    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        """Apply what happened at a client, grant what can be granted, and reply."""
        self._expire(now)  # first: a message that comes too late must not be applied
        self._asking.discard(batch.client)
        client = self._clients.get(batch.client)
        if self._is_repeated(client, batch):
            return self._reply_to_copy(client, batch)
        if batch.detach:
            self._detach(now, batch)
            self.tick(now)
            return self._empty_reply()

        changes = _Changes()
        if batch.attach is not None:
            client = self._client(now, batch.client)
            self._attach(now, client, batch, batch.attach, changes)
        elif client is None or not client.attached or client.epoch != batch.epoch:
            return self._empty_reply(unknown=True)
        client.seen = now
        client.last_batch = batch.number
        self._apply(now, client, batch, changes)
        self._adapt(now, batch.succeeded, batch.throttled)
        self.tick(now)

        tickets = tuple(
            (number, client.tickets[number])
            for number in changes.joined
            if number in client.tickets
        )
        reply = self._reply(now, client, tickets, tuple(changes.lost))
        client.last_batch_reply = reply
        if batch.attach is not None:
            client.epoch = reply.version
        return reply

    def _is_repeated(self, client: KnownClient | None, batch: Batch) -> bool:
        """Has this batch, or a later one of the client, been applied already?"""
        last = self._unreported.get(batch.client, 0)
        if client is not None:
            last = client.last_batch
        return 0 < batch.number <= last

    def _reply_to_copy(self, client: KnownClient | None, batch: Batch) -> LimiterReply:
        """Return the first reply again if this is a copy of the last batch, else an empty one."""
        if client is not None and batch.number == client.last_batch and client.last_batch_reply:
            return client.last_batch_reply
        return self._empty_reply()

    def _apply(self, now: float, client: KnownClient, batch: Batch, changes: _Changes) -> None:
        """Write down what happened at an attached client."""
        for number in batch.cancel:
            self._cancel(client, number)
        for number, permit in batch.handed:
            ticket = client.tickets.get(number)
            self._record("handed_on", client, waiter=number, ticket=ticket, permit=permit)
            self._dequeue(client, number)
            self._counts["handed_on"] += 1
            if not self._renew(now, client, permit):
                changes.lost.append(permit)
        for permit in batch.release:
            if not self._take_back(client, permit):
                changes.lost.append(permit)
        for permit in batch.renew:
            if not self._renew(now, client, permit):
                changes.lost.append(permit)
        for number in batch.acquire:
            if number not in client.tickets:
                self._enqueue(client, number, self._take_ticket())
                changes.joined.append(number)

    def take(self, now: float, name: str, epoch: int, number: int) -> tuple[str, float] | None:
        """Grant an attached client a permit at once; None if none is free or somebody is ahead.

        This needs no message. The second value is its lease. After None its waiter comes with the
        next batch, and nobody takes a permit before that has arrived.
        """
        self._expire(now)
        client = self._attached(name, epoch)
        if client is None:
            return None
        self._asking.discard(name)
        must_wait = bool(
            self._asking
            or self._shares.waiting
            or len(self._permits) >= self.width
            or self.learning_at(now)
        )
        if not must_wait and self._bucket is not None:
            must_wait = not self._bucket.take(now)
        if must_wait:
            self._asking.add(name)
            return None
        client.seen = now
        ticket = self._take_ticket()
        self._record("asked", client, waiter=number, ticket=ticket)
        self._shares.serve_newcomer(client.share)
        return self._issue(now, client, number, ticket), self.settings.lease

    def give_back(
        self,
        now: float,
        name: str,
        epoch: int,
        permit: str,
        succeeded: bool = False,
        throttled: bool = False,
    ) -> bool:
        """Take a permit back at once, without a message.

        False if the client has to send one, because it is not attached.
        """
        self._expire(now)
        client = self._attached(name, epoch)
        if client is None:
            return False
        client.seen = now
        self._take_back(client, permit)
        self._adapt(now, succeeded, throttled)
        if self._shares.waiting:
            self.tick(now)
        return True

    def heartbeat(self, now: float, poll: Poll) -> None:
        """Note that a poll came. It may wait here; answering it later is no sign of life."""
        self._expire(now)
        client = self._attached(poll.client, poll.epoch)
        if client is not None:
            client.seen = now

    def poll(self, now: float, poll: Poll, came: float | None = None) -> LimiterReply:
        """Return what the client has not received yet.

        That is nothing if the poll belongs to another attachment. ``came`` is when the poll came,
        if that was earlier than ``now``.
        """
        self.tick(now)
        client = self._attached(poll.client, poll.epoch)
        if client is None:
            return self._empty_reply(unknown=True)
        if poll.number < client.last_poll:
            return self._empty_reply()
        if poll.number == client.last_poll and client.last_poll_reply is not None:
            return client.last_poll_reply
        client.seen = max(client.seen, now if came is None else came)
        client.last_poll = poll.number
        reply = self._reply(now, client)
        client.last_poll_reply = reply
        return reply

    def has_update(self, poll: Poll) -> bool:
        """True when a poll must return.

        There is a grant, or there are new settings, or the client attached again or has to.
        """
        client = self._attached(poll.client, poll.epoch)
        return client is None or client.last_poll >= poll.number or client.has_update

    def clients(self) -> dict[str, int]:
        """The clients that may hold permits, with the numbers of their attachments.

        A successor learns from them.
        """
        clients = dict(self._unreported)
        for client in self._clients.values():
            if client.leased and (client.attached or client.permits):
                clients[client.name] = client.attached_by
        return clients

    def _attached(self, name: str, epoch: int) -> KnownClient | None:
        """Return the client if this is its present attachment."""
        client = self._clients.get(name)
        if client is not None and client.attached and client.epoch == epoch:
            return client
        return None

    def _detach(self, now: float, batch: Batch) -> None:
        self._unreported.pop(batch.client, None)
        client = self._clients.get(batch.client)
        if client is None:
            return
        self._drop_waiters(client)
        for permit in sorted(client.permits):
            self._release(client, permit)
        # It is forgotten after a lease: until then, late copies of its messages are recognized by
        # their number.
        self._set_attached(now, client, False)
        self._notify(client)  # a poll that is waiting for it need not wait any longer
        client.last_batch = max(client.last_batch, batch.number)
        client.seen = now

    def _attach(
        self,
        now: float,
        client: KnownClient,
        batch: Batch,
        attach: Attach,
        changes: _Changes,
    ) -> None:
        """Replace what is known of a client by what it reports."""
        # A client silent for a whole lease has lost its places: others may already count on being
        # first.
        keeps_places = client.attached or self.learning_at(now)
        self._join_share(now, client, attach)
        client.attached_by = batch.number
        client.grants.clear()
        self._notify(client)

        places = self._return_lost_grants(client, attach)
        for permit in attach.held:
            if self._renew(now, client, permit):
                continue
            if self.learning_at(now):
                self._hold(now, client, permit)
                self._record("learned", client, permit=permit)
            else:
                changes.lost.append(permit)

        self._drop_others(client, standing={number for number, _ in attach.waiting})
        for number, known in attach.waiting:
            if number not in client.tickets:
                ticket = places.get(number) or known
                if ticket is None or not keeps_places or self._shares.holds_ticket(ticket):
                    ticket = self._take_ticket()
                self._enqueue(client, number, ticket)
            changes.joined.append(number)
        client.share.sort()
        self._unreported.pop(client.name, None)

    def _return_lost_grants(self, client: KnownClient, attach: Attach) -> dict[int, int | None]:
        """Take back permits that the client does not know of; return the tickets of their waiters.

        The message with the grant was lost. The permit returns, and its waiter keeps its place.
        """
        places: dict[int, int | None] = {}
        for permit in sorted(client.permits.difference(attach.held)):
            held = self._permits[permit]
            places[held.waiter] = held.ticket
            self._release(client, permit)
        return places

    def _drop_others(self, client: KnownClient, standing: set[int]) -> None:
        """Remove the client's waiters that are not among those still standing in its queue."""
        for number, ticket in list(client.tickets.items()):
            if number not in standing:
                self._record("cancelled", client, waiter=number, ticket=ticket)
                self._dequeue(client, number)

    def _join_share(self, now: float, client: KnownClient, attach: Attach) -> None:
        share = self._shares.get(attach.share)
        if share is not client.share:
            self._set_attached(now, client, False)
            client.share.out -= len(client.permits)
            share.out += len(client.permits)
            for ticket in client.tickets.values():
                self._shares.join(share, ticket, client.share.waiters.pop(ticket))
            client.share = share
        self._set_attached(now, client, True)
        self._shares.discard_unused()

    def _run(self, client: KnownClient) -> int:
        """Return the ticket up to which the client may serve its own waiters; 0 for none."""
        # Nothing is handed on while permits above the limit drain, with tokens per second (they are
        # counted here), while learning, when other waiters may turn out to be further ahead, or
        # while another share may go first.
        if (
            not client.tickets
            or self._bucket is not None
            or self._free() < 0
            or self._learning
            or self._shares.several
        ):
            return 0
        waiters = client.share.waiters
        if len(client.tickets) == len(waiters):
            return next(reversed(waiters))  # nobody else waits: up to the last
        run = 0
        for place, (ticket, (owner, _)) in enumerate(waiters.items()):
            if owner is not client or place >= LONGEST_SCAN:
                break
            run = ticket
        return run

    def _reply(
        self,
        now: float,
        client: KnownClient,
        tickets: tuple[tuple[int, int], ...] = (),
        lost: tuple[str, ...] = (),
    ) -> LimiterReply:
        if client.leased:
            # The lease counts from when the grant is sent: it may have waited here for the client's
            # poll.
            expires = now + self.settings.lease
            for _, permit in client.grants:
                self._permits[permit].expires = expires
                heapq.heappush(self._expiries, (expires, permit))
        grants = tuple(client.grants)
        client.grants.clear()
        client.has_update = False
        if client.lease != self.settings.lease:
            client.lease = self.settings.lease
            self._no_death_before = min(self._no_death_before, now + client.lease)
            if client.in_deaths:
                self._watch(client)  # its lease may be shorter now
        self._version += 1
        self.updated.pop(client.name, None)
        return LimiterReply(
            incarnation=self.incarnation,
            version=self._version,
            grants=grants,
            tickets=tickets,
            run=self._run(client),
            lost=lost,
            lease=self.settings.lease,
        )

    def _empty_reply(self, *, unknown: bool = False) -> LimiterReply:
        return LimiterReply(self.incarnation, version=0, unknown=unknown, lease=self.settings.lease)
