"""The place where a limiter lives: its core behind a lock, and those who wait for news of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Batch, Reply, Snapshot
from sfusion_tools.limiter.settings import LimiterSettings


class LimiterHost:
    """Serves clients of any thread and event loop; the rules are the core's."""

    def __init__(self, core: LimiterCore, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._lock = threading.Lock()
        self._polls: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = {}

    def exchange(self, batch: Batch) -> Reply:
        """Take in one batch; never waits."""
        with self._lock:
            reply = self._core.exchange(self._clock(), batch)
            self._wake()
        return reply

    async def wait(self, client: str, epoch: int, at_most: float) -> Reply:
        """Answer as soon as there is news for the client, or with none after ``at_most`` seconds."""
        loop = asyncio.get_running_loop()
        end = self._clock() + at_most
        while True:
            with self._lock:
                now = self._clock()
                self._core.tick(now)
                reply = None
                if now >= end or self._core.has_news(client, epoch):
                    reply = self._core.poll(now, client, epoch)
                self._wake()
                if reply is not None:
                    return reply
                news = loop.create_future()
                self._polls[client] = (loop, news)
                pause = min(end, self._core.next_deadline(now)) - now
            try:
                async with asyncio.timeout(max(pause, 0.0)):
                    await news
            except TimeoutError:
                pass

    def configure(self, settings: LimiterSettings) -> None:
        """Apply other limits."""
        with self._lock:
            self._core.configure(self._clock(), settings)
            self._wake()

    @property
    def settings(self) -> LimiterSettings:
        """The limits in force."""
        return self._core.settings

    def snapshot(self) -> Snapshot:
        """How things stand."""
        with self._lock:
            snapshot = self._core.snapshot(self._clock())
            self._wake()
        return snapshot

    def clients(self) -> list[str]:
        """Who is known to live."""
        with self._lock:
            return self._core.clients()

    def _wake(self) -> None:
        for client in self._core.take_ready():
            self._wake_one(client)

    def _wake_one(self, client: str) -> None:
        poll = self._polls.pop(client, None)
        if poll is not None:
            loop, news = poll
            if not loop.is_closed():
                loop.call_soon_threadsafe(_resolve, news)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
