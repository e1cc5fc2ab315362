"""The client of a limiter, one per event loop: the asyncio shell around ``client_core``."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Coroutine, Iterable
from typing import Protocol, Self, runtime_checkable
from uuid import uuid4
from weakref import ref

from sfusion_tools.errors import (
    LimiterClosed,
    LimiterError,
    LimiterUnreachable,
    PermitTimeout,
    SessionChanged,
)
from sfusion_tools.limiter.client_core import ClientCore, Received
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from sfusion_tools.limiter.permit import Permit
from sfusion_tools.runtime import LoopResource, LoopScope, runtime

logger = logging.getLogger(__name__)


class Transport(Protocol):
    """Carries messages to a limiter; raises LimiterUnreachable when it does not answer.

    The first message after this process connected to a cluster again is not sent: it raises
    SessionChanged.
    """

    async def exchange(self, batch: Batch) -> LimiterReply:
        """Deliver a batch and return the limiter's reply."""

    async def wait(self, poll: Poll) -> LimiterReply:
        """Return when there is an update for the client.

        Return after ``poll.at_most`` seconds at the latest.
        """

    def detach(self, farewell: Batch) -> None:
        """Deliver a client's last message without waiting, also when no event loop runs."""


@runtime_checkable
class NearTransport(Transport, Protocol):
    """Leads to a limiter in this process.

    It grants a permit at once if one is free and nobody waits.
    """

    def take(self, client: str, epoch: int, number: int) -> tuple[str, float] | None:
        """Return a permit and its lease, or None if the caller has to queue."""

    def give_back(
        self, client: str, epoch: int, permit: str, succeeded: bool, throttled: bool
    ) -> bool:
        """Return a permit; False if that has to be told by a batch.

        This may be called from a finaliser.
        """


class LeasedPermit(Permit["Limiter"]):
    """A permit that its client renews as long as it is out."""

    __slots__ = ()

    async def __aenter__(self) -> Self:
        limiter = self._limiter
        id = limiter._take()
        if id is None:
            loop = asyncio.get_running_loop()
            since = now = loop.time()
            end = None if self._timeout is None else since + self._timeout
            try:
                while id is None or limiter._has_lapsed(id, now):
                    id = await limiter._acquire(now, end)
                    now = loop.time()
            finally:
                self.waited = loop.time() - since
        self._hold(id)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._out:
            self._out = False
            self._limiter._release(self.id, self._succeeded, self._throttled)

    def _hold(self, id: str) -> None:
        self.id = id
        self._out = True
        self._limiter._owners[id] = ref(self)


class Limiter(LoopResource):
    """A client of a limiter, for use within one event loop."""

    def __init__(
        self,
        transport: Transport,
        *,
        name: str | None = None,
        share: str = "",
        held: Iterable[str] = (),
    ) -> None:
        """Callers of clients without a ``share`` are in one common share.

        No two clients of a limiter may have the same ``name`` at the same time: to the limiter they
        are one client, and each would return the permits of the other. By default it is random.
        ``held`` are permits of an earlier life of the client with this name; ``adopt`` returns
        them.
        """
        self.name = name or uuid4().hex[:12]
        self._transport = transport
        self._near = transport if isinstance(transport, NearTransport) else None
        # The requests of a later client with the same name have higher numbers: no client makes a
        # million per second.
        first_request = time.time_ns() // 1000
        self._core = ClientCore(self.name, share, first_request=first_request, held=held)
        self._futures: dict[int, asyncio.Future[str]] = {}
        # Whoever is interrupted just when a permit is granted never enters it: nobody owns it, so
        # it is not renewed.
        self._owners: dict[str, ref[LeasedPermit]] = {}
        # Waiters that had been served at the last renewal and had not gone on.
        self._granted: set[int] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: LoopScope | None = None
        self._sender: asyncio.Task[None] | None = None
        self._poller: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = math.inf  # a handle of uvloop does not say when
        self._wake = asyncio.Event()
        self._closed = False

    def permit(self, timeout: float | None = None) -> LeasedPermit:
        """Return a permit to enter: ``async with limiter.permit(timeout) as permit``.

        Entering waits in the queue and raises PermitTimeout after ``timeout`` seconds. Cancelling
        the caller leaves the queue, or returns a permit that was just granted.
        """
        return LeasedPermit(self, timeout)

    def adopt(self, id: str) -> LeasedPermit:
        """Return a permit of this client's earlier life, as if it had been entered."""
        permit = LeasedPermit(self, None)
        permit._hold(id)
        return permit

    @property
    def share(self) -> str:
        return self._core.share

    @property
    def held(self) -> int:
        """The number of permits this client holds."""
        return len(self._core.held)

    @property
    def waiting(self) -> int:
        """The number of callers waiting for a permit."""
        return self._core.waiting

    async def flush(self, *, at_once: bool = False) -> None:
        """Wait until the limiter has received everything that happened here so far.

        With ``at_once``, do not linger for more of it.
        """
        while self._sender is not None and self._loop is not None:
            now = self._loop.time()
            self._core.hurry(now, drain=at_once)
            self._schedule(self._loop, now)
            if self._sender is not None:
                await asyncio.wait([self._sender])

    def reattach(self) -> None:
        """Report the full state to the limiter.

        The limiter that knew it may be gone, and its successor waits for it.
        """
        if self._loop is not None and not self._closed and not self._loop.is_closed():
            now = self._loop.time()
            self._core.report(now)
            self._schedule(self._loop, now)

    async def aclose(self) -> None:
        """Detach: waiting callers get LimiterClosed, permits return to the limiter.

        In another loop than its own nothing is waited for.
        """
        is_own_loop = self._loop is asyncio.get_running_loop()
        tasks = [task for task in (self._sender, self._poller) if task is not None and is_own_loop]
        self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Detach without waiting, also after the loop was closed.

        Nothing of the loop is referenced afterwards.
        """
        if self._closed:
            return
        self._closed = True
        loop_is_open = self._loop is not None and not self._loop.is_closed()
        if loop_is_open:
            self._fail_waiters(LimiterClosed("this limiter was closed while a caller waited"))
        farewell = self._core.farewell()
        self._core = ClientCore(self.name, self.share)
        for task in (self._sender, self._poller):
            if task is not None:
                _end(task, loop_is_open)
        if self._timer is not None:
            self._timer.cancel()
        if farewell is not None:
            self._transport.detach(farewell)
        if self._scope is not None:
            self._scope.drop(self)
        self._futures.clear()
        self._owners.clear()
        self._loop = self._scope = self._sender = self._poller = self._timer = None
        self._wake = asyncio.Event()

    def _take(self) -> str | None:
        """Return a permit if there is one that nobody waits for.

        That needs no message and no turn of the loop.
        """
        loop = self._loop
        near = self._near
        core = self._core
        if loop is None or near is None:
            return None
        now = loop.time()
        permit = core.take(now, near.take)
        if permit is not None and (self._timer is None or self._timer_at > core.renew_at):
            self._schedule(loop, now)
        return permit

    async def _acquire(self, now: float, end: float | None) -> str:
        """Wait for a permit until ``end``."""
        if self._closed:
            raise LimiterClosed("this limiter was closed")
        loop = self._loop or self._bind_to_loop()
        if loop is not asyncio.get_running_loop():
            raise LimiterClosed(
                "this limiter belongs to another event loop; make one in each loop that uses it"
            )
        number = self._core.acquire(now)
        deadline: asyncio.Handle | None = None
        try:
            future: asyncio.Future[str] = loop.create_future()
            self._futures[number] = future
            self._schedule(loop, now)
            if end is not None:
                deadline = loop.call_at(end, _time_out, future, end - now)
            return await future
        except BaseException:
            self._withdraw(number, self._futures.get(number))
            raise
        finally:
            self._futures.pop(number, None)
            if deadline is not None:
                deadline.cancel()

    def _bind_to_loop(self) -> asyncio.AbstractEventLoop:
        self._scope = runtime.scope()
        self._scope.adopt(self)
        self._loop = self._scope.loop
        return self._loop

    def _withdraw(self, number: int, future: asyncio.Future[str] | None) -> None:
        if future is not None and _has_permit(future):
            self._release(future.result(), False, False)
        elif self._loop is not None and not self._loop.is_closed():
            now = self._loop.time()
            self._core.cancel(now, number)
            self._schedule(self._loop, now)

    def _release(self, permit: str, succeeded: bool, throttled: bool) -> None:
        if self._closed:
            return
        self._owners.pop(permit, None)
        # The first call may be the release of an adopted permit.
        loop = self._loop or self._bind_to_loop()
        if loop.is_closed():
            return  # abandoning the client returns its permits
        near = self._near
        if near is not None and self._core.give_back(permit, near.give_back, succeeded, throttled):
            return
        now = loop.time()
        heir = self._core.heir
        while heir is not None and self._is_gone(heir):
            self._core.cancel(now, heir)
            heir = self._core.heir
        heir = self._core.release(now, permit, succeeded=succeeded, throttled=throttled)
        if heir is not None:
            self._futures[heir].set_result(permit)
        self._schedule(loop, now)

    def _has_lapsed(self, permit: str, now: float) -> bool:
        """Return a permit that may be another's by now; False if it is certainly ours.

        This process was stalled after the permit had been granted.
        """
        lapsed = self._core.held.get(permit, math.inf) <= now
        if lapsed:
            self._release(permit, False, False)
        return lapsed

    def _is_gone(self, number: int) -> bool:
        future = self._futures.get(number)
        return future is None or future.done()

    def _schedule(self, loop: asyncio.AbstractEventLoop, now: float) -> None:
        """Start or wake the sender if there is something to send, and set the renewal timer.

        A task may have ended by an interrupt or a cancellation, at any point: what it had in flight
        is lost.
        """
        core = self._core
        if self._sender is not None and self._sender.done():
            if _was_interrupted(self._sender):
                core.resync(now)
            self._sender = None
        if self._poller is not None and self._poller.done():
            if _was_interrupted(self._poller):
                core.resync(now)
            self._poller = None
            self._start_poller(loop)
        if core.send_at < math.inf:
            if self._sender is None:
                self._sender = self._start(loop, self._send(), "send")
            if core.send_at <= now:
                self._wake.set()
        if self._timer is not None:
            if self._timer_at <= core.renew_at:
                return
            self._timer.cancel()
        self._timer_at = core.renew_at
        self._timer = None
        if core.renew_at < math.inf:
            self._timer = loop.call_at(core.renew_at, self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        granted = {number for number, future in self._futures.items() if future.done()}
        # A caller takes what it was granted at once. One that has not since the last renewal was
        # interrupted.
        for number in self._granted & granted:
            del self._futures[number]
        self._granted = granted

        used = {id for id, owner in self._owners.items() if owner() is not None}
        for future in self._futures.values():
            if _has_permit(future):
                used.add(future.result())
        now = loop.time()
        self._core.renew(now, used)
        self._schedule(loop, now)

    async def _send(self) -> None:
        """Send batches, one at a time, until there is nothing to send."""
        loop = asyncio.get_running_loop()
        core = self._core
        try:
            while core.send_at < math.inf:
                now = loop.time()
                if core.send_at > now:
                    now = await self._pause(loop, core.send_at)
                self._wake.clear()
                batch = core.next_batch(now)
                if batch is None:
                    continue
                try:
                    reply = await self._transport.exchange(batch)
                except LimiterUnreachable as error:
                    logger.warning(
                        "limiter does not answer, trying again in %.2g s: %s",
                        core.retry_pause,
                        error,
                    )
                    if isinstance(error, SessionChanged):
                        core.change_session()
                    core.lose(loop.time(), batch)
                else:
                    self._settle(core.receive(loop.time(), batch, reply))
                    self._start_poller(loop)
                    self._schedule(loop, loop.time())
        except Exception as error:
            self._fail(error)

    async def _pause(self, loop: asyncio.AbstractEventLoop, until: float) -> float:
        """Wait until then, or until there is something to send now; return the time."""
        try:
            async with asyncio.timeout_at(until):
                await self._wake.wait()
        except TimeoutError:
            return max(loop.time(), until)
        return loop.time()

    def _start_poller(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._poller is None and self._core.polls:
            self._poller = self._start(loop, self._poll(), "poll")

    def _start(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[None, None, None], verb: str
    ) -> asyncio.Task[None]:
        task = loop.create_task(work, name=f"limiter {self.name}: {verb}")
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # an interrupt, which the loop has raised
        if not self._closed:
            loop = task.get_loop()
            self._schedule(loop, loop.time())

    async def _poll(self) -> None:
        """Wait for news of the limiter as long as there can be any."""
        loop = asyncio.get_running_loop()
        core = self._core
        try:
            poll = core.next_poll(loop.time())
            while poll is not None:
                try:
                    reply = await self._transport.wait(poll)
                except LimiterUnreachable:
                    core.lose(loop.time(), poll)
                else:
                    self._settle(core.receive(loop.time(), poll, reply))
                self._schedule(loop, loop.time())
                poll = core.next_poll(loop.time())
        except Exception as error:
            self._fail(error)

    def _settle(self, received: Received) -> None:
        for permit in received.lost:
            logger.warning(
                "permit %s was lost while it was in use: the limiter was replaced, or this process "
                "was stalled or cut off from it for a whole lease",
                permit,
            )
        for number, permit in received.grants:
            if self._is_gone(number):
                self._release(permit, False, False)
            else:
                self._futures[number].set_result(permit)

    def _fail(self, error: Exception) -> None:
        # A defect, not a lost connection: waiting callers must get it instead of waiting for ever.
        logger.error(
            "the limiter cannot be used: %s", error, exc_info=not isinstance(error, LimiterError)
        )
        if isinstance(error, LimiterError):
            self._fail_waiters(error)
        else:
            self._fail_waiters(LimiterError(f"the limiter failed: {error}"))

    def _fail_waiters(self, error: LimiterError) -> None:
        for number in self._core.give_up():
            if not self._is_gone(number):
                self._futures[number].set_exception(error)


def _time_out(future: asyncio.Future[str], seconds: float) -> None:
    if not future.done():
        future.set_exception(PermitTimeout(f"no permit within {seconds:g} s"))


def _has_permit(future: asyncio.Future[str]) -> bool:
    """Was the waiter of this future granted a permit?"""
    return future.done() and not future.cancelled() and future.exception() is None


def _was_interrupted(task: asyncio.Task[None]) -> bool:
    return task.cancelled() or task.exception() is not None


def _end(task: asyncio.Task[None], loop_is_open: bool) -> None:
    if loop_is_open:
        task.cancel()
        if task.get_loop().is_running():
            return
    # A loop that is closed cannot run the cancellation, and one that does not run may never run
    # again. Close the coroutine here: the garbage collector would close its parts in any order.
    coroutine = task.get_coro()
    assert isinstance(coroutine, Coroutine)
    coroutine.close()
    # Keep the task from logging that it was destroyed while pending: there is no other way to end a
    # task without its loop.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
