"""The client's half of the protocol: calls, replies and the time go in, requests come out.

It has no clock and does no I/O.

Acquires and releases are coalesced into batches, with one batch in flight at a time. While waiters
of this client are at the head of the queue, a permit that is released goes to the next of them at
once, and the limiter is notified with the next batch. After a lost message, or when the limiter
does not know it, a client *attaches*: it sends its full state.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply, Poll

COALESCE_SECONDS = 0.005
"""How long a message that no caller waits for may be held back. Chosen: long enough to gather the
releases of a burst, and short beside the run of a program."""

SPARE_RUN = 16
"""With at least this many of our waiters at the head of the queue, sending is not urgent. Chosen:
more than are served while a message is on its way."""

FIRST_RETRY = 0.05
LAST_RETRY = 2.0
"""First and longest pause between attempts to reach a limiter that does not answer. Chosen: quick
after a restart, and no burden on a cluster that is down."""

RENEWALS_PER_LEASE = 3
"""Chosen: two renewals in a row may be late or lost, and no permit is."""


class Received(NamedTuple):
    """What a reply means for this client's callers."""

    grants: list[tuple[int, str]]
    """(waiter, permit): waiters that hold a permit from now on."""
    lost: list[str]
    """Permits in use here that belong to others by now."""


@dataclass(slots=True)
class _Changes:
    """What the limiter does not know yet."""

    acquire: dict[int, None] = field(default_factory=dict)
    cancel: list[int] = field(default_factory=list)
    handed: list[tuple[int, str]] = field(default_factory=list)
    release: list[str] = field(default_factory=list)
    succeeded: int = 0
    throttled: int = 0
    renew: bool = False
    """The leases of all permits held are to be renewed."""


@dataclass(slots=True)
class _Connection:
    """What is known of the limiter at the other end."""

    attached: bool = False
    epoch: int = 0
    incarnation: str = ""
    version: int = 0
    run: int = 0
    lease: float = 0.0
    moved: bool = False
    """This process has left the cluster of that limiter."""


class ClientCore:
    """The waiters and permits of one client, and what it sends.

    The caller delivers what ``next_batch`` and ``next_poll`` return, reports the outcome with
    ``receive`` or ``lose``, asks again at ``send_at``, and calls ``renew`` at ``renew_at``.
    """

    def __init__(
        self, name: str, share: str, *, first_request: int = 1, held: Iterable[str] = ()
    ) -> None:
        """``held`` are permits from an earlier life of this client."""
        self.name = name
        self.share = share
        self.send_at = math.inf
        """When ``next_batch`` has to be called."""
        self.renew_at = math.inf
        """When ``renew`` has to be called."""
        self._next_request = first_request
        self._next_waiter = 1
        self._waiting: dict[int, int | None] = {}  # waiter -> ticket
        self._queued: deque[int] = deque()  # other clients' waiters may be ahead of them
        self._run_queue: deque[int] = deque()  # at the head of the queue: ours to serve
        self.held = dict.fromkeys(held, math.inf)
        """The permits of this client, with the time until which each is certainly its own."""
        self._changes = _Changes()
        self._connection = _Connection()
        self._in_flight: tuple[Batch, float] | None = None
        self._polling: tuple[Poll, float] | None = None
        self._urgent = False
        """What there is to send goes at once, or as soon as the reply in flight has come."""
        self._draining = False
        """Nothing is held back until nothing is left to send."""
        self._introduced = False
        """The limiter may know this client: it was sent an attachment."""
        self._reports = False
        """The next batch is an attachment even if there is nothing to say."""
        self.retry_pause = FIRST_RETRY
        """Seconds until the limiter is tried again when it does not answer now."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def polls(self) -> bool:
        """True when ``next_poll`` has something to return."""
        return (
            self._polling is None and self._connection.attached and bool(self._waiting or self.held)
        )

    @property
    def heir(self) -> int | None:
        """The waiter that gets the next permit released here.

        None if others may be ahead of ours.
        """
        while self._run_queue and self._run_queue[0] not in self._waiting:
            self._run_queue.popleft()
        return self._run_queue[0] if self._run_queue else None

    def acquire(self, now: float) -> int:
        """Join the queue; return the number of the waiter."""
        number = self._next_waiter
        self._next_waiter += 1
        self._waiting[number] = None
        self._changes.acquire[number] = None
        self._schedule(now, urgent=len(self._run_queue) < SPARE_RUN)
        return number

    def take(
        self, now: float, ask: Callable[[str, int, int], tuple[str, float] | None]
    ) -> str | None:
        """Ask a limiter in this process for a permit that is free.

        None if the caller has to join the queue.
        """
        connection = self._connection
        if self._waiting or not connection.attached:
            return None
        granted = ask(self.name, connection.epoch, self._next_waiter)
        if granted is None:
            return None
        permit, lease = granted
        self._next_waiter += 1
        self.held[permit] = now + lease
        self.renew_at = min(self.renew_at, now + lease / RENEWALS_PER_LEASE)
        return permit

    def give_back(
        self,
        permit: str,
        tell: Callable[[str, int, str, bool, bool], bool],
        succeeded: bool,
        throttled: bool,
    ) -> bool:
        """Release a permit that no waiter of this client can have, to a limiter in this process.

        False if only ``release`` can do it.
        """
        connection = self._connection
        if (
            self._waiting
            or self._changes.handed
            or not connection.attached
            or permit not in self.held
        ):
            return False
        if not tell(self.name, connection.epoch, permit, succeeded, throttled):
            return False
        del self.held[permit]
        return True

    def cancel(self, now: float, number: int) -> None:
        """Leave the queue; do nothing if the waiter is not in it."""
        if number not in self._waiting:
            return
        del self._waiting[number]
        if number in self._changes.acquire:
            del self._changes.acquire[number]
        else:
            self._changes.cancel.append(number)
            self._schedule(now, urgent=True)

    def release(
        self, now: float, permit: str, *, succeeded: bool = False, throttled: bool = False
    ) -> int | None:
        """Take a permit back; return the waiter that holds it from now on, if it went to one."""
        self._changes.succeeded += succeeded
        self._changes.throttled += throttled
        until = self.held.get(permit)
        if until is None:
            return None
        heir = self.heir if until > now else None
        if heir is not None:
            self._run_queue.popleft()
            del self._waiting[heir]
            self._changes.handed.append((heir, permit))
            self._schedule(now, urgent=False)
        else:
            del self.held[permit]
            self._changes.release.append(permit)
            self._schedule(now, urgent=True)
        return heir

    def hurry(self, now: float, *, drain: bool = False) -> None:
        """Send what there is without holding it back.

        With ``drain``, also what comes before the next reply.
        """
        if self.send_at < math.inf or self._in_flight is not None:
            self._schedule(now, urgent=True)
        self._draining |= drain

    def renew(self, now: float, used: Container[str] | None = None) -> None:
        """Renew the leases: it is time to. Permits that are not among those ``used`` return."""
        self.renew_at = math.inf
        if used is not None:
            unused = [permit for permit in self.held if permit not in used]
            for permit in unused:
                del self.held[permit]
                self._changes.release.append(permit)
        if self.held:
            self._changes.renew = True
            self._plan_renewal(now)
        self._schedule(now, urgent=True)

    def next_batch(self, now: float) -> Batch | None:
        """Return what is to be sent now.

        None if a batch is in flight, or if there is nothing to send yet.
        """
        if self._in_flight is not None or now < self.send_at:
            return None
        self.send_at = math.inf
        self._urgent = False
        batch = self._make_batch()
        if batch is None:
            self._draining = False
        else:
            self._in_flight = batch, now
        return batch

    def next_poll(self, now: float) -> Poll | None:
        """Return the next long poll, None if there is nothing to learn.

        It brings grants while callers wait, and shows that the limiter is alive while permits are
        held.
        """
        if not self.polls:
            return None
        connection = self._connection
        poll = Poll(
            client=self.name,
            epoch=connection.epoch,
            number=self._take_number(),
            at_most=connection.lease / RENEWALS_PER_LEASE,
        )
        self._polling = poll, now
        return poll

    def farewell(self) -> Batch | None:
        """Return the message that detaches this client; None if the limiter never heard of it."""
        if not self._introduced:
            return None
        return Batch(self.name, detach=True, number=self._take_number())

    def receive(self, now: float, request: Batch | Poll, reply: LimiterReply) -> Received:
        """Apply the reply to a request. A reply to a request that was given up has no effect."""
        result = Received([], [])
        sent = self._finish(request)
        if sent is None or not self._may_apply(now, request):
            return result

        late = bool(reply.grants) and now >= sent + reply.lease
        if late or reply.unknown:
            # Either the limiter forgot us or was replaced, and knows nothing of our permits. Or
            # this process was stalled for a whole lease, and its permits may belong to others by
            # now. Attaching again settles both.
            self._connection.attached = False
            self._schedule(now, urgent=True)
            return result

        batch = request if isinstance(request, Batch) else None
        if batch is not None and batch.attach is not None:
            self._attached(now, reply, result.lost)
        self._follow(reply)
        self._update_leases(reply, sent, batch, result.lost)
        for number, ticket in sorted(reply.tickets, key=itemgetter(1)):
            if number in self._waiting:
                self._waiting[number] = ticket
                self._queued.append(number)
        self._delegate()
        self._accept(now, reply, until=sent + reply.lease, result=result)
        self._plan_renewal(now)
        return result

    def _may_apply(self, now: float, request: Batch | Poll) -> bool:
        """Note that a request was answered; False if nothing in the answer counts any more."""
        if isinstance(request, Batch):
            if request.attach is not None:
                self._reports = False
            self.retry_pause = FIRST_RETRY
            at_once = self._urgent or self._draining
            self.send_at = now if at_once else now + COALESCE_SECONDS
            return True
        # Grants to an earlier attachment that never arrived were returned by attaching again.
        return self._connection.attached and request.epoch == self._connection.epoch

    def _follow(self, reply: LimiterReply) -> None:
        """Take over run and lease, unless a newer reply has brought them already."""
        connection = self._connection
        if reply.version > connection.version:
            connection.version = reply.version
            connection.run = reply.run
            connection.lease = reply.lease

    def _accept(self, now: float, reply: LimiterReply, until: float, result: Received) -> None:
        """Give permits to their waiters, or to others in place of those that have left."""
        for number, permit in reply.grants:
            self.held[permit] = until
            if number in self._waiting:
                del self._waiting[number]
                result.grants.append((number, permit))
                continue
            heir = self.release(now, permit)
            if heir is not None:
                result.grants.append((heir, permit))

    def lose(self, now: float, request: Batch | Poll) -> None:
        """Attach again: a request failed, and may have been applied, now or later, or not."""
        if self._finish(request) is None:
            return
        self._connection.attached = False
        if isinstance(request, Batch):
            self._urgent = True
            self.send_at = now + self.retry_pause
            self.retry_pause = min(self.retry_pause * 2, LAST_RETRY)
        else:
            self._schedule(now, urgent=True)

    def resync(self, now: float) -> None:
        """Report the full state: work on what was in flight was interrupted, at any point."""
        self._in_flight = self._polling = None
        self._connection.attached = False
        self._urgent = True
        self.send_at = now

    def report(self, now: float) -> None:
        """Attach again although there may be nothing to say.

        A successor waits for every client that was attached.
        """
        self._reports = self._introduced
        self.resync(now)

    def change_session(self) -> None:
        """Note that this process is connected to a cluster again, perhaps to another one."""
        self._connection.moved = True

    def give_up(self) -> list[int]:
        """Forget all waiters and return them: the limiter's replies cannot be used."""
        self._connection.attached = False
        self._in_flight = self._polling = None
        self.send_at = math.inf
        self._urgent = False
        self._changes.acquire.clear()
        waiting = list(self._waiting)
        self._waiting.clear()
        return waiting

    def _make_batch(self) -> Batch | None:
        """Return what the limiter does not know yet, None if there is nothing."""
        if self._connection.attached:
            return self._make_update()
        return self._make_attachment()

    def _make_update(self) -> Batch | None:
        changes = self._changes
        if not (
            changes.acquire or changes.cancel or changes.handed or changes.release or changes.renew
        ):
            return None
        batch = Batch(
            client=self.name,
            acquire=tuple(changes.acquire),
            cancel=tuple(changes.cancel),
            handed=tuple(changes.handed),
            release=tuple(changes.release),
            renew=tuple(self.held) if changes.renew else (),
            succeeded=changes.succeeded,
            throttled=changes.throttled,
            epoch=self._connection.epoch,
            number=self._take_number(),
        )
        self._changes = _Changes()
        return batch

    def _make_attachment(self) -> Batch | None:
        """Return the full state, which includes what the changes would report."""
        changes = self._changes
        known = self._waiting or self.held or changes.release or changes.cancel or changes.handed
        if not (known or self._reports):
            return None
        self._introduced = True
        batch = Batch(
            client=self.name,
            attach=Attach(tuple(self.held), tuple(self._waiting.items()), self.share),
            succeeded=changes.succeeded,
            throttled=changes.throttled,
            number=self._take_number(),
        )
        self._changes = _Changes()
        return batch

    def _take_number(self) -> int:
        number = self._next_request
        self._next_request += 1
        return number

    def _schedule(self, now: float, *, urgent: bool) -> None:
        if self._in_flight is not None:
            self._urgent |= urgent  # counts when the reply arrives
        elif urgent and not self._urgent:
            self._urgent = True
            self.send_at = now
        elif self.send_at == math.inf:
            self.send_at = now + COALESCE_SECONDS

    def _finish(self, request: Batch | Poll) -> float | None:
        """Return when the request was sent, None if it is no longer in flight."""
        pending = self._in_flight if isinstance(request, Batch) else self._polling
        if pending is None or pending[0].number != request.number:
            return None
        if isinstance(request, Batch):
            self._in_flight = None
        else:
            self._polling = None
        return pending[1]

    def _attached(self, now: float, reply: LimiterReply, lost: list[str]) -> None:
        connection = self._connection
        if reply.incarnation != connection.incarnation:
            # A new limiter believes what we report. But permits of another cluster are none of its
            # own, and a lease that ended meanwhile may have been given to others by the old
            # limiter, before it died.
            doubtful = [
                permit for permit, until in self.held.items() if until <= now or connection.moved
            ]
            for permit in doubtful:
                del self.held[permit]
                self._changes.release.append(permit)
                lost.append(permit)
                self._schedule(now, urgent=True)
        connection.attached = True
        connection.moved = False
        connection.incarnation = reply.incarnation
        connection.epoch = reply.version
        connection.version = 0
        self._queued.clear()
        self._run_queue.clear()
        for number in self._waiting:
            self._waiting[number] = None

    def _update_leases(
        self, reply: LimiterReply, sent: float, batch: Batch | None, lost: list[str]
    ) -> None:
        """Forget the permits that belong to others; renew those that the batch named."""
        for permit in reply.lost:
            if permit in self.held:
                del self.held[permit]
                lost.append(permit)
        if batch is None:
            return
        renewed = list(batch.renew if batch.attach is None else batch.attach.held)
        renewed += [permit for _, permit in batch.handed]
        for permit in renewed:
            if permit in self.held:
                self.held[permit] = sent + reply.lease

    def _delegate(self) -> None:
        """Move the waiters up to the ticket ``run`` to the queue that this client serves itself.

        Without a run, all move back. Those that have left, and have no ticket any more, go along;
        ``heir`` drops them.
        """
        run = self._connection.run
        if not run:
            self._queued.extendleft(reversed(self._run_queue))
            self._run_queue.clear()
        while self._queued:
            ticket = self._waiting.get(self._queued[0])
            if ticket is not None and ticket > run:
                return
            self._run_queue.append(self._queued.popleft())

    def _plan_renewal(self, now: float) -> None:
        if self.held:
            self.renew_at = min(self.renew_at, now + self._connection.lease / RENEWALS_PER_LEASE)
