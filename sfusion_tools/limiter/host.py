"""The shell around the core: a lock, a clock, and the long polls that wait for an update."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll, Snapshot
from sfusion_tools.limiter.settings import LimiterSettings

_SHORTEST_WAIT = 1e-6
"""A timer may fire a rounding error before its time; waiting for that rest again and again would be a busy loop."""


class LimiterHost:
    """Serves clients from any thread and event loop."""

    def __init__(self, core: LimiterCore, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._lock = threading.Lock()
        # Held by the coroutine that waits: a loop that ends without a word takes its polls along.
        self._polls: WeakValueDictionary[str, _PendingPoll] = WeakValueDictionary()

    def exchange(self, batch: Batch) -> LimiterReply:
        with self._lock:
            now = self._clock()
            reply = self._core.exchange(now, batch)
            self._wake_all(now)
        return reply

    def take(self, client: str, epoch: int, number: int) -> tuple[str, float] | None:
        """Grant a permit at once; None if another thread is here, or if the caller has to queue."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._core.take(self._clock(), client, epoch, number)
        finally:
            self._lock.release()

    def give_back(self, client: str, epoch: int, permit: str, succeeded: bool, throttled: bool) -> bool:
        """Take a permit back at once; False if that has to be told by a message.

        The garbage collector may end a caller in a thread that is here already, so this must not wait for the lock.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            now = self._clock()
            known = self._core.give_back(now, client, epoch, permit, succeeded, throttled)
            if self._core.updated or self._core.settings.per_second is not None:
                self._wake_all(now)
            return known
        finally:
            self._lock.release()

    async def wait(self, poll: Poll) -> LimiterReply:
        """Reply as soon as there is an update for the client, or without one after ``poll.at_most`` seconds."""
        loop = asyncio.get_running_loop()
        came = self._clock()
        end = came + poll.at_most
        with self._lock:
            self._core.heartbeat(came, poll)
        while True:
            with self._lock:
                now = self._clock()
                self._core.tick(now)
                reply = None
                if now >= end or self._core.has_update(poll):
                    reply = self._core.poll(now, poll, came)
                self._wake()
                if reply is not None:
                    return reply
                until = min(end, self._core.next_deadline(now))
                pending = self._polls[poll.client] = _PendingPoll(loop, until)
            try:
                async with asyncio.timeout(max(until - now, _SHORTEST_WAIT)):
                    await pending.update
            except TimeoutError:
                pass

    def configure(self, settings: LimiterSettings) -> None:
        with self._lock:
            self._core.configure(self._clock(), settings)
            self._wake()

    @property
    def settings(self) -> LimiterSettings:
        return self._core.settings

    def snapshot(self) -> Snapshot:
        with self._lock:
            snapshot = self._core.snapshot(self._clock())
            self._wake()
        return snapshot

    def clients(self) -> dict[str, int]:
        """The clients that a successor has to learn from, with the numbers of their attachments."""
        with self._lock:
            return self._core.clients()

    def longest_lease(self) -> float:
        """For how long a successor has to learn from clients that do not report."""
        with self._lock:
            return self._core.longest_lease(self._clock())

    def _wake_all(self, now: float) -> None:
        self._wake()
        if self._core.settings.per_second is not None:
            self._wake_for(self._core.next_deadline(now))

    def _wake(self) -> None:
        for client in self._core.take_updated():
            poll = self._polls.pop(client, None)
            if poll is not None:
                poll.wake()

    def _wake_for(self, deadline: float) -> None:
        """Let a poll look again if all of them would sleep past a grant that only time makes possible."""
        polls = list(self._polls.values())
        if polls and all(poll.until > deadline for poll in polls):
            polls[0].wake()


class _PendingPoll:
    def __init__(self, loop: asyncio.AbstractEventLoop, until: float) -> None:
        self.loop = loop
        self.until = until
        """When it looks again without being woken."""
        self.update: asyncio.Future[None] = loop.create_future()

    def wake(self) -> None:
        with suppress(RuntimeError):  # its loop was closed
            self.loop.call_soon_threadsafe(_resolve, self.update)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
