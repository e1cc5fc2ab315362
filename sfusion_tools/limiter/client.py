"""The client of a limiter, one per event loop: many callers, few messages.

Acquires and releases are coalesced into batches, with one batch in flight at a time. While waiters of this client are
at the head of the queue, a permit that is released goes to the next of them at once, and the limiter is notified with
the next batch. That keeps the round trip to the limiter out of a busy loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine
from typing import Protocol
from uuid import uuid4

from sfusion_tools._loops import before_loop_ends
from sfusion_tools.errors import LimiterClosed, LimiterError, LimiterUnreachable, PermitTimeout
from sfusion_tools.limiter.messages import Attach, Batch, LimiterReply
from sfusion_tools.limiter.settings import Share
from sfusion_tools.runtime import LoopResource

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.005
"""How long a message that no caller waits for may be held back."""
SPARE_RUN = 16
"""With at least this many of our waiters at the head of the queue, sending is not urgent."""
FIRST_RETRY, LAST_RETRY = 0.05, 2.0
"""First and longest pause between attempts to reach a limiter that does not answer."""
RENEWALS_PER_LEASE = 3


class Transport(Protocol):
    """Carries messages to a limiter; raises LimiterUnreachable when it does not answer."""

    async def exchange(self, batch: Batch) -> LimiterReply:
        """Deliver a batch and return the limiter's reply."""

    async def wait(self, client: str, epoch: int, at_most: float) -> LimiterReply:
        """Return when there is an update for the client, at the latest after ``at_most`` seconds."""

    def detach(self, client: str) -> None:
        """Notify the limiter, without waiting, that the client is gone."""


class Permit:
    """The right to have one attempt in flight, from entering this context manager to leaving it."""

    __slots__ = ("_limiter", "_out", "_succeeded", "_throttled", "_timeout", "id", "waited")

    def __init__(self, limiter: Limiter, timeout: float | None) -> None:
        self._limiter = limiter
        self._timeout = timeout
        self._out = self._succeeded = self._throttled = False
        self.id = ""
        self.waited = 0.0
        """Seconds spent in the queue, also if no permit was granted."""

    async def __aenter__(self) -> Permit:
        loop = asyncio.get_running_loop()
        since = loop.time()
        try:
            self.id = await self._limiter._acquire(self._timeout)
        finally:
            self.waited = loop.time() - since
        self._out = True
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._out:
            self._out = False
            self._limiter._release(self.id, self._succeeded, self._throttled)

    def report(self, *, succeeded: bool = False, throttled: bool = False) -> None:
        """Say how the attempt ended; an adaptive limit follows it."""
        self._succeeded, self._throttled = succeeded, throttled


class _Waiter:
    __slots__ = ("future", "number", "ticket")

    def __init__(self, number: int, future: asyncio.Future[str]) -> None:
        self.number = number
        self.future = future
        self.ticket: int | None = None


class Limiter(LoopResource):
    """A client of a limiter, for use within one event loop."""

    def __init__(self, transport: Transport, *, name: str | None = None, share: Share | None = None) -> None:
        """Callers of clients without a ``share`` are in one common share of weight 1."""
        self.name = name or uuid4().hex[:12]
        self.share = share or Share()
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Waiter] = {}
        self._unsent: dict[int, None] = {}
        self._queued: deque[_Waiter] = deque()  # other clients' waiters may be ahead of them
        self._run_queue: deque[_Waiter] = deque()  # at the head of the queue: ours to serve
        self._held: dict[str, float] = {}  # permit -> until when it is certainly ours
        self._cancels: list[int] = []
        self._handed: list[tuple[int, str]] = []
        self._releases: list[str] = []
        self._succeeded = self._throttled = 0
        self._attached = False
        self._epoch = 0
        self._incarnation = ""
        self._version = self._run = 0
        self._lease = 0.0
        self._renew_due = False
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._sender: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._guard: AsyncGenerator[None] | None = None
        self._urgent = asyncio.Event()
        self._closed = False

    def permit(self, timeout: float | None = None) -> Permit:
        """Return a permit to enter: ``async with limiter.permit(timeout) as permit``.

        Entering waits in the queue and raises PermitTimeout after ``timeout`` seconds. Cancelling the caller leaves
        the queue, or returns a permit that was just granted.
        """
        return Permit(self, timeout)

    async def _acquire(self, timeout: float | None) -> str:
        if self._closed:
            raise LimiterClosed("this limiter was closed")
        if self._loop is None:
            await self._bind_to_loop()
        loop = asyncio.get_running_loop()
        waiter = _Waiter(next(self._numbers), loop.create_future())
        self._waiting[waiter.number] = waiter
        self._unsent[waiter.number] = None
        self._schedule_send(urgent=len(self._run_queue) < SPARE_RUN)
        # A bare timer: asyncio.timeout costs more than everything else when a permit is handed on.
        timer = None if timeout is None else loop.call_later(timeout, _time_out, waiter.future, timeout)
        try:
            return await waiter.future
        except BaseException:
            self._withdraw(waiter)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    @property
    def held(self) -> int:
        """The number of permits this client holds."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """The number of callers waiting for a permit."""
        return len(self._waiting)

    async def flush(self) -> None:
        """Wait until the limiter has received everything that happened here so far."""
        while self._sender is not None:
            self._urgent.set()
            await asyncio.wait([self._sender])

    async def aclose(self) -> None:
        """Detach: waiting callers get LimiterClosed, permits return to the limiter."""
        tasks = [task for task in (self._sender, self._poller) if task is not None]
        self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Detach without waiting, also after the loop was closed; nothing of the loop is referenced afterwards."""
        if self._closed:
            return
        self._closed = True
        loop_is_open = self._loop is not None and not self._loop.is_closed()
        for waiter in self._waiting.values():
            if loop_is_open and not waiter.future.done():
                waiter.future.set_exception(LimiterClosed("this limiter was closed while a caller waited"))
        for task in (self._sender, self._poller):
            if task is not None:
                _end(task, loop_is_open)
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        if self._epoch:
            self._transport.detach(self.name)
        for container in (self._waiting, self._unsent, self._held, self._queued, self._run_queue):
            container.clear()
        # This object may be a value in a mapping keyed by its loop: it must not keep that loop alive.
        self._loop = self._guard = self._heartbeat_timer = self._sender = self._poller = None
        self._urgent = asyncio.Event()

    async def _bind_to_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Callers need not close a limiter: the end of its loop does, so that no task is left behind.
        self._guard = before_loop_ends(self.aclose)
        await anext(self._guard)

    def _release(self, permit: str, succeeded: bool, throttled: bool) -> None:
        self._succeeded += succeeded
        self._throttled += throttled
        self._return_permit(permit)

    def _withdraw(self, waiter: _Waiter) -> None:
        if waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
            self._return_permit(waiter.future.result())
        elif self._waiting.pop(waiter.number, None) is not None:
            if waiter.number in self._unsent:
                del self._unsent[waiter.number]
            else:
                self._cancels.append(waiter.number)
                self._schedule_send(urgent=True)

    def _return_permit(self, permit: str) -> None:
        until = self._held.get(permit)
        if until is None or self._loop is None:
            return
        if until > self._loop.time():
            while self._run_queue:
                waiter = self._run_queue.popleft()
                if self._waiting.pop(waiter.number, None) is not None and not waiter.future.done():
                    self._handed.append((waiter.number, permit))
                    waiter.future.set_result(permit)
                    self._schedule_send(urgent=False)
                    return
        del self._held[permit]
        self._releases.append(permit)
        self._schedule_send(urgent=True)

    def _schedule_send(self, *, urgent: bool) -> None:
        if self._closed or self._loop is None:
            return
        if urgent:
            self._urgent.set()
        if self._sender is None and not self._loop.is_closed():
            self._sender = self._loop.create_task(self._send_loop(), name=f"limiter {self.name}: send")

    async def _send_loop(self) -> None:
        """Send batches, one at a time, until there is nothing to send."""
        retry = FIRST_RETRY
        try:
            while True:
                if not self._urgent.is_set():
                    await self._coalesce()
                self._urgent.clear()
                batch = self._batch()
                if batch is None:
                    return
                sent = asyncio.get_running_loop().time()
                try:
                    reply = await self._transport.exchange(batch)
                except LimiterUnreachable as error:
                    logger.warning("limiter does not answer, trying again in %.2g s: %s", retry, error)
                    self._attached = False
                    await asyncio.sleep(retry)
                    retry = min(retry * 2, LAST_RETRY)
                    self._urgent.set()
                    continue
                retry = FIRST_RETRY
                self._receive(reply, sent, batch)
        except Exception as error:
            self._fail(error)
        finally:
            self._sender = None

    def _fail(self, error: Exception) -> None:
        # A defect, not a lost connection: waiting callers must get it instead of waiting for ever.
        logger.exception("the limiter's answer could not be used")
        self._attached = False
        for waiter in self._waiting.values():
            if not waiter.future.done():
                waiter.future.set_exception(LimiterError(f"the limiter failed: {error}"))
        self._waiting.clear()

    async def _coalesce(self) -> None:
        try:
            async with asyncio.timeout(COALESCE_SECONDS):
                await self._urgent.wait()
        except TimeoutError:
            pass

    def _batch(self) -> Batch | None:
        attach: Attach | None = None
        acquire = tuple(self._unsent)
        if not self._attached:
            if not (self._waiting or self._held or self._releases or self._cancels or self._handed):
                return None
            self._epoch += 1
            standing = tuple((waiter.number, waiter.ticket) for waiter in self._waiting.values())
            attach = Attach(self._epoch, tuple(self._held), standing)
            # The full state includes what these would report.
            self._cancels, self._handed, self._releases, acquire = [], [], [], ()
        renew = tuple(self._held) if self._renew_due and attach is None else ()
        if not (attach or acquire or self._cancels or self._handed or self._releases or renew):
            return None
        batch = Batch(
            self.name,
            attach,
            acquire,
            tuple(self._cancels),
            tuple(self._handed),
            tuple(self._releases),
            renew,
            self._succeeded,
            self._throttled,
        )
        self._unsent.clear()
        self._cancels, self._handed, self._releases = [], [], []
        self._succeeded = self._throttled = 0
        self._renew_due = False
        return batch

    def _receive(self, reply: LimiterReply, sent: float, batch: Batch | None = None) -> None:
        attaching = batch is not None and batch.attach is not None
        late = reply.grants and self._loop is not None and self._loop.time() >= sent + reply.lease
        if late or reply.unknown or (not attaching and reply.incarnation != self._incarnation):
            # Either the limiter forgot us or was replaced, and knows nothing of our permits. Or this process was
            # stalled for a whole lease, and its permits may belong to others by now. Attaching again settles both.
            self._attached = False
            self._schedule_send(urgent=True)
            return
        self._lease = reply.lease
        if attaching:
            self._attached = True
            self._incarnation, self._version = reply.incarnation, 0
            self._queued.clear()
            self._run_queue.clear()
            for waiter in self._waiting.values():
                waiter.ticket = None
        self._update_leases(reply, sent, batch)
        for number, ticket in reply.tickets:
            waiting = self._waiting.get(number)
            if waiting is not None:
                waiting.ticket = ticket
                self._queued.append(waiting)
        if reply.version > self._version:
            self._version, self._run = reply.version, reply.run
        self._delegate()
        for number, permit in reply.grants:
            self._held[permit] = sent + self._lease
            granted = self._waiting.pop(number, None)
            if granted is None or granted.future.done():
                self._return_permit(permit)
            else:
                granted.future.set_result(permit)
        self._start_heartbeat()

    def _update_leases(self, reply: LimiterReply, sent: float, batch: Batch | None) -> None:
        for permit in reply.lost:
            if self._held.pop(permit, None) is not None:
                logger.warning(
                    "permit %s ran out while it was in use: this process was stalled for more than %g s",
                    permit,
                    self._lease,
                )
        if batch is not None:
            named = batch.attach.held if batch.attach is not None else batch.renew
            for permit in itertools.chain(named, (permit for _, permit in batch.handed)):
                if permit in self._held:
                    self._held[permit] = sent + self._lease

    def _delegate(self) -> None:
        if not self._run:
            self._queued.extendleft(reversed(self._run_queue))
            self._run_queue.clear()
        while self._queued and (self._queued[0].ticket or 0) <= self._run:
            self._run_queue.append(self._queued.popleft())

    def _start_heartbeat(self) -> None:
        if self._loop is None or self._closed:
            return
        if (self._waiting or self._held) and self._poller is None:
            self._poller = self._loop.create_task(self._poll_loop(), name=f"limiter {self.name}: poll")
        if self._heartbeat_timer is None and self._held:
            self._heartbeat_timer = self._loop.call_later(self._lease / RENEWALS_PER_LEASE, self._heartbeat)

    def _heartbeat(self) -> None:
        self._heartbeat_timer = None
        if self._held:
            self._renew_due = True
            self._schedule_send(urgent=True)
            self._start_heartbeat()

    async def _poll_loop(self) -> None:
        """Long-poll for grants while callers wait, and to notice a dead limiter while permits are held."""
        try:
            while (self._waiting or self._held) and self._attached:
                sent, epoch = asyncio.get_running_loop().time(), self._epoch
                reply = await self._transport.wait(self.name, epoch, self._lease / RENEWALS_PER_LEASE)
                # Grants to an earlier attachment that never arrived were returned by attaching again.
                if self._attached and epoch == self._epoch:
                    self._receive(reply, sent)
        except LimiterUnreachable:
            self._attached = False
            self._schedule_send(urgent=True)
        except Exception as error:
            self._fail(error)
        finally:
            self._poller = None


def _time_out(future: asyncio.Future[str], seconds: float) -> None:
    if not future.done():
        future.set_exception(PermitTimeout(f"no permit within {seconds:g} s"))


def _end(task: asyncio.Task[None], loop_is_open: bool) -> None:
    if loop_is_open:
        task.cancel()
        return
    # A closed loop cannot run the cancellation. Close the coroutine here, and keep the task from logging that it was
    # destroyed while pending: there is no other way to end a task without its loop.
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    coroutine.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
