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

from sfusion_tools.limiter.book import PermitBook
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Poll
from sfusion_tools.limiter.shares import KnownClient

LONGEST_SCAN = 256
"""How far into the queue a client's run is looked for; the rest of a longer run follows in later
replies."""


class LimiterCore(PermitBook):
    """Applies the messages of clients to the book, each once and in order, and replies."""

    def exchange(self, now: float, batch: Batch) -> LimiterReply:
        """Apply what happened at a client, grant what can be granted, and reply."""
        self._expire(now)  # first: a message that comes too late must not be applied
        self._asking.discard(batch.client)
        client = self._clients.get(batch.client)
        last = client.last_batch if client is not None else self._unreported.get(batch.client, 0)
        if 0 < batch.number <= last:
            repeated = client is not None and batch.number == last and client.last_batch_reply
            return repeated or self._empty_reply()
        if batch.detach:
            self._detach(now, batch)
            self.tick(now)
            return self._empty_reply()
        lost: list[str] = []
        joined: list[int] = []
        if batch.attach is not None:
            client = self._client(now, batch.client)
            self._attach(now, client, batch, batch.attach, lost, joined)
        elif client is None or not client.attached or client.epoch != batch.epoch:
            return self._empty_reply(unknown=True)
        client.seen = now
        client.last_batch = batch.number
        for number in batch.cancel:
            self._cancel(client, number)
        for number, permit in batch.handed:
            self._record(
                "handed_on", client, waiter=number, ticket=client.tickets.get(number), permit=permit
            )
            self._dequeue(client, number)
            self._counts["handed_on"] += 1
            if not self._renew(now, client, permit):
                lost.append(permit)
        lost += [permit for permit in batch.release if not self._take_back(client, permit)]
        lost += [permit for permit in batch.renew if not self._renew(now, client, permit)]
        for number in batch.acquire:
            if number not in client.tickets:
                self._enqueue(client, number, self._take_ticket())
                joined.append(number)
        self._adapt(now, batch.succeeded, batch.throttled)
        self.tick(now)
        tickets = tuple(
            (number, client.tickets[number]) for number in joined if number in client.tickets
        )
        reply = client.last_batch_reply = self._reply(now, client, tickets, tuple(lost))
        if batch.attach is not None:
            client.epoch = reply.version
        return reply

    def take(self, now: float, name: str, epoch: int, number: int) -> tuple[str, float] | None:
        """Grant an attached client a permit without a message, if one is free and nobody is ahead;
        else None.

        The second value is its lease. After None its waiter comes with the next batch, and nobody
        takes a permit before that has arrived.
        """
        self._expire(now)
        client = self._attached(name, epoch)
        if client is None:
            return None
        self._asking.discard(name)
        if (
            self._asking
            or self._shares.waiting
            or len(self._permits) >= self.width
            or self.learning_at(now)
            or (self._bucket is not None and not self._bucket.take(now))
        ):
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
        """Take a permit back without a message; False if the client has to send one, because it
        is not attached."""
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
        """A poll came, which may wait before it is answered: answering it later is no sign of
        life."""
        self._expire(now)
        client = self._attached(poll.client, poll.epoch)
        if client is not None:
            client.seen = now

    def poll(self, now: float, poll: Poll, came: float | None = None) -> LimiterReply:
        """Return what the client has not received yet; nothing if the poll belongs to another
        attachment.

        ``came`` is when the poll came, if that was earlier than ``now``.
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
        reply = client.last_poll_reply = self._reply(now, client)
        return reply

    def has_update(self, poll: Poll) -> bool:
        """True when a poll must return: a grant, new settings, or the client attached again or
        has to."""
        client = self._attached(poll.client, poll.epoch)
        return client is None or client.last_poll >= poll.number or client.has_update

    def clients(self) -> dict[str, int]:
        """The clients that may hold permits, with the numbers of their attachments: a successor
        learns from them."""
        known = {
            c.name: c.attached_by
            for c in self._clients.values()
            if c.leased and (c.attached or c.permits)
        }
        return {**self._unreported, **known}

    def _attached(self, name: str, epoch: int) -> KnownClient | None:
        """Return the client if this is its present attachment."""
        client = self._clients.get(name)
        return client if client is not None and client.attached and client.epoch == epoch else None

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
        lost: list[str],
        joined: list[int],
    ) -> None:
        # A client silent for a whole lease has lost its places: others may already count on being
        # first.
        keeps_places = client.attached or self.learning_at(now)
        self._join_share(now, client, attach)
        client.attached_by = batch.number
        client.grants.clear()
        self._notify(client)
        # A grant whose message was lost is not in the client's list: its permit returns, its waiter
        # keeps its place.
        places: dict[int, int | None] = {}
        for permit in sorted(client.permits.difference(attach.held)):
            places[self._permits[permit].waiter] = self._permits[permit].ticket
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
        for number, known in attach.waiting:
            if number not in client.tickets:
                ticket = places.get(number) or known
                if ticket is None or not keeps_places or self._shares.holds_ticket(ticket):
                    ticket = self._take_ticket()
                self._enqueue(client, number, ticket)
            joined.append(number)
        client.share.sort()
        self._unreported.pop(client.name, None)

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
            return next(reversed(waiters))
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
        for _, permit in client.grants if client.leased else ():
            # The lease counts from when the grant is sent: it may have waited here for the client's
            # poll.
            self._permits[permit].expires = now + self.settings.lease
            heapq.heappush(self._expiries, (now + self.settings.lease, permit))
        grants = tuple(client.grants)
        client.grants.clear()
        client.has_update = False
        if client.lease != self.settings.lease:
            client.lease = self.settings.lease
            self._next_death = min(self._next_death, now + client.lease)
            if client.in_deaths:
                self._watch(client)  # its lease may be shorter now
        self._version += 1
        self.updated.pop(client.name, None)
        run = self._run(client)
        return LimiterReply(
            self.incarnation, self._version, False, grants, tickets, run, lost, self.settings.lease
        )

    def _empty_reply(self, *, unknown: bool = False) -> LimiterReply:
        return LimiterReply(self.incarnation, version=0, unknown=unknown, lease=self.settings.lease)
