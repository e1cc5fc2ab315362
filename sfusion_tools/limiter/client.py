"""One event loop's end of a limiter: many callers, few messages.

Acquires and releases are gathered into batches, one batch under way at a time. While waiters of this client are the
first in line, a permit that comes free is handed on to the next of them at once and the limiter hears of it with the
next batch; that is what keeps the round trip out of a busy loop.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import uuid4

from sfusion_tools._loops import before_loop_ends
from sfusion_tools.errors import LimiterClosed, LimiterError, LimiterUnreachable, PermitTimeout
from sfusion_tools.limiter.messages import Attach, Batch, Reply

logger = logging.getLogger(__name__)

COALESCE_SECONDS = 0.005
"""How long news that nobody waits for may be gathered."""
SPARE_RUN = 16
"""With at least so many of our own next in line, what we say is not urgent."""
FIRST_RETRY, LAST_RETRY = 0.05, 2.0
"""Pauses between tries to reach a limiter that does not answer."""
RENEWALS_PER_LEASE = 3


class Transport(Protocol):
    """The way to a limiter; raises LimiterUnreachable when there is none."""

    async def exchange(self, batch: Batch) -> Reply:
        """Deliver a batch."""

    async def wait(self, client: str, epoch: int, at_most: float) -> Reply:
        """Wait for news."""

    def farewell(self, client: str) -> None:
        """Say, without waiting, that the client is gone."""


class Permit:
    """The right to have one attempt in flight, until released."""

    __slots__ = ("_limiter", "id", "waited")

    def __init__(self, limiter: Limiter, id: str, waited: float) -> None:
        self._limiter = limiter
        self.id = id
        self.waited = waited
        """Seconds spent in line."""

    def release(self, *, succeeded: bool = False, throttled: bool = False) -> None:
        """Give it back, saying if the sandbox did its work or answered 429. A second release does nothing."""
        if self.id:
            self._limiter._finish(self.id, succeeded, throttled)
            self.id = ""


class _Ask:
    __slots__ = ("future", "number", "since", "ticket")

    def __init__(self, number: int, future: asyncio.Future[str], since: float) -> None:
        self.number = number
        self.future = future
        self.since = since
        self.ticket: int | None = None


class Limiter:
    """A client of a limiter, for use within one event loop."""

    def __init__(self, transport: Transport, *, name: str | None = None) -> None:
        self.name = name or uuid4().hex[:12]
        self._transport = transport
        self._loop: asyncio.AbstractEventLoop | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, _Ask] = {}
        self._untold: dict[int, None] = {}
        self._behind: deque[_Ask] = deque()  # in line, others may stand before them
        self._next: deque[_Ask] = deque()  # first in line: ours to serve
        self._held: dict[str, float] = {}  # permit -> until when it is surely ours
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
        self._renewal: asyncio.TimerHandle | None = None
        self._pump: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._guard: AsyncGenerator[None] | None = None
        self._urgent = asyncio.Event()
        self._closed = False

    async def acquire(self, timeout: float | None = None) -> Permit:
        """Wait in line for a permit; cancelling the caller leaves the line, or gives a permit just granted back."""
        if self._closed:
            raise LimiterClosed("this limiter was closed")
        if self._loop is None:
            await self._settle()
        loop = asyncio.get_running_loop()
        ask = _Ask(next(self._numbers), loop.create_future(), loop.time())
        self._waiting[ask.number] = ask
        self._untold[ask.number] = None
        self._speak(urgent=len(self._next) < SPARE_RUN)
        # A bare timer: asyncio.timeout costs more than all the rest of a permit that is handed on.
        timer = None if timeout is None else loop.call_later(timeout, _give_up, ask.future, timeout)
        try:
            permit = await ask.future
        except BaseException:
            self._withdraw(ask)
            raise
        finally:
            if timer is not None:
                timer.cancel()
        return Permit(self, permit, loop.time() - ask.since)

    @asynccontextmanager
    async def permit(self, timeout: float | None = None) -> AsyncIterator[Permit]:
        """Hold a permit for the length of a block."""
        permit = await self.acquire(timeout)
        try:
            yield permit
        finally:
            permit.release()

    @property
    def held(self) -> int:
        """Permits this client holds."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """Callers of this client that wait."""
        return len(self._waiting)

    async def flush(self) -> None:
        """Wait until the limiter has heard all that happened here so far."""
        while self._pump is not None:
            self._urgent.set()
            await asyncio.wait([self._pump])

    async def aclose(self) -> None:
        """Leave: those who wait here get LimiterClosed, permits return."""
        if self._closed:
            return
        self._closed = True
        for ask in self._waiting.values():
            if not ask.future.done():
                ask.future.set_exception(LimiterClosed("this limiter was closed while a caller waited"))
        self._waiting.clear()
        self._held.clear()
        if self._renewal is not None:
            self._renewal.cancel()
        tasks = [task for task in (self._pump, self._listener) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._epoch:
            self._transport.farewell(self.name)
        # Whoever keeps this object by its loop must not keep the loop alive by this object.
        self._loop = self._guard = self._renewal = None
        self._urgent = asyncio.Event()
        self._behind.clear()
        self._next.clear()

    async def _settle(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Nobody has to close a limiter: the end of its loop does, so that no task is left behind.
        self._guard = before_loop_ends(self.aclose)
        await anext(self._guard)

    def _finish(self, permit: str, succeeded: bool, throttled: bool) -> None:
        self._succeeded += succeeded
        self._throttled += throttled
        self._give_back(permit)

    def _withdraw(self, ask: _Ask) -> None:
        if ask.future.done() and not ask.future.cancelled() and ask.future.exception() is None:
            self._give_back(ask.future.result())
        elif self._waiting.pop(ask.number, None) is not None:
            if ask.number in self._untold:
                del self._untold[ask.number]
            else:
                self._cancels.append(ask.number)
                self._speak(urgent=True)

    def _give_back(self, permit: str) -> None:
        until = self._held.get(permit)
        if until is None or self._loop is None:
            return
        if until > self._loop.time():
            while self._next:
                ask = self._next.popleft()
                if self._waiting.pop(ask.number, None) is not None and not ask.future.done():
                    self._handed.append((ask.number, permit))
                    ask.future.set_result(permit)
                    self._speak(urgent=False)
                    return
        del self._held[permit]
        self._releases.append(permit)
        self._speak(urgent=True)

    def _speak(self, *, urgent: bool) -> None:
        if self._closed or self._loop is None:
            return
        if urgent:
            self._urgent.set()
        if self._pump is None and not self._loop.is_closed():
            self._pump = self._loop.create_task(self._talk(), name=f"limiter {self.name}: talk")

    async def _talk(self) -> None:
        """Send batches, one at a time, until there is nothing to say."""
        retry = FIRST_RETRY
        try:
            while True:
                if not self._urgent.is_set():
                    await self._gather()
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
                self._hear(reply, sent, batch)
        except Exception as error:
            self._fail(error)
        finally:
            self._pump = None

    def _fail(self, error: Exception) -> None:
        # A defect, not a lost connection: those who wait must hear of it instead of waiting for ever.
        logger.exception("the limiter's answer could not be used")
        self._attached = False
        for ask in self._waiting.values():
            if not ask.future.done():
                ask.future.set_exception(LimiterError(f"the limiter failed: {error}"))
        self._waiting.clear()

    async def _gather(self) -> None:
        try:
            async with asyncio.timeout(COALESCE_SECONDS):
                await self._urgent.wait()
        except TimeoutError:
            pass

    def _batch(self) -> Batch | None:
        attach: Attach | None = None
        acquire = tuple(self._untold)
        if not self._attached:
            if not (self._waiting or self._held or self._releases or self._cancels or self._handed):
                return None
            self._epoch += 1
            standing = tuple((ask.number, ask.ticket) for ask in self._waiting.values())
            attach = Attach(self._epoch, tuple(self._held), standing)
            # The whole state says what these would say.
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
        self._untold.clear()
        self._cancels, self._handed, self._releases = [], [], []
        self._succeeded = self._throttled = 0
        self._renew_due = False
        return batch

    def _hear(self, reply: Reply, sent: float, batch: Batch | None = None) -> None:
        attaching = batch is not None and batch.attach is not None
        late = reply.grants and self._loop is not None and self._loop.time() >= sent + reply.lease
        if late or reply.unknown or (not attaching and reply.incarnation != self._incarnation):
            # It forgot us, or is another one: what it says of our permits means nothing before it knows them. Or this
            # process was stalled: permits granted that long ago may be others' by now. Attaching anew settles both.
            self._attached = False
            self._speak(urgent=True)
            return
        self._lease = reply.lease
        if attaching:
            self._attached = True
            self._incarnation, self._version = reply.incarnation, 0
            self._behind.clear()
            self._next.clear()
            for ask in self._waiting.values():
                ask.ticket = None
        self._keep(reply, sent, batch)
        for number, ticket in reply.tickets:
            waiting = self._waiting.get(number)
            if waiting is not None:
                waiting.ticket = ticket
                self._behind.append(waiting)
        if reply.version > self._version:
            self._version, self._run = reply.version, reply.run
        self._delegate()
        for number, permit in reply.grants:
            self._held[permit] = sent + self._lease
            granted = self._waiting.pop(number, None)
            if granted is None or granted.future.done():
                self._give_back(permit)
            else:
                granted.future.set_result(permit)
        self._keep_alive()

    def _keep(self, reply: Reply, sent: float, batch: Batch | None) -> None:
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
            self._behind.extendleft(reversed(self._next))
            self._next.clear()
        while self._behind and (self._behind[0].ticket or 0) <= self._run:
            self._next.append(self._behind.popleft())

    def _keep_alive(self) -> None:
        if self._loop is None or self._closed:
            return
        if (self._waiting or self._held) and self._listener is None:
            self._listener = self._loop.create_task(self._listen(), name=f"limiter {self.name}: listen")
        if self._renewal is None and self._held:
            self._renewal = self._loop.call_later(self._lease / RENEWALS_PER_LEASE, self._renew)

    def _renew(self) -> None:
        self._renewal = None
        if self._held:
            self._renew_due = True
            self._speak(urgent=True)
            self._keep_alive()

    async def _listen(self) -> None:
        """Hear of grants as long as somebody waits, and at once when the limiter dies as long as permits are held."""
        try:
            while (self._waiting or self._held) and self._attached:
                sent, epoch = asyncio.get_running_loop().time(), self._epoch
                reply = await self._transport.wait(self.name, epoch, self._lease / RENEWALS_PER_LEASE)
                # What an earlier attachment was granted and never heard of, the attachment itself gave back.
                if self._attached and epoch == self._epoch:
                    self._hear(reply, sent)
        except LimiterUnreachable:
            self._attached = False
            self._speak(urgent=True)
        except Exception as error:
            self._fail(error)
        finally:
            self._listener = None


def _give_up(future: asyncio.Future[str], seconds: float) -> None:
    if not future.done():
        future.set_exception(PermitTimeout(f"no permit within {seconds:g} s"))
