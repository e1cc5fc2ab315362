"""The shell around the core: a lock, a clock and long polls; and the limiter of one process."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from uuid import uuid4
from weakref import WeakValueDictionary

from sfusion_tools._loops import resolve
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.core import LimiterCore
from sfusion_tools.limiter.messages import Batch, LimiterRecord, LimiterReply, Poll, Snapshot
from sfusion_tools.limiter.settings import LimiterSettings
from sfusion_tools.runtime import runtime

logger = logging.getLogger(__name__)

_SHORTEST_WAIT = 1e-6
"""A timer may fire a rounding error before its time, and waiting for that rest again and again
would be a busy loop. Chosen: above any rounding error, and no delay that matters."""


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

    def give_back(
        self, client: str, epoch: int, permit: str, succeeded: bool, throttled: bool
    ) -> bool:
        """Take a permit back at once; False if that has to be told by a message.

        The garbage collector may end a caller in a thread that is here already, so this must not
        wait for the lock.
        """
        if not self._lock.acquire(blocking=False):
            return False
        try:
            now = self._clock()
            # By position: every attempt comes through here.
            known = self._core.give_back(now, client, epoch, permit, succeeded, throttled)
            self._wake_all(now)
            return known
        finally:
            self._lock.release()

    async def wait(self, poll: Poll) -> LimiterReply:
        """Reply as soon as there is an update for the client.

        After ``poll.at_most`` seconds, reply without one.
        """
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
                pending = self._polls[poll.client] = _PendingPoll(loop.create_future(), until)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(until - now, _SHORTEST_WAIT)):
                    await pending.update

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

    def record(self, actor: str, attaching: Batch | None = None) -> LimiterRecord:
        """Return what a successor has to know; one client may be about to be attached."""
        with self._lock:
            core = self._core
            return LimiterRecord.of(
                actor,
                settings=core.settings,
                clients=core.clients(),
                lease=core.longest_lease(self._clock()),
                attaching=attaching,
            )

    def _wake_all(self, now: float) -> None:
        self._wake()
        polls = list(self._polls.values())
        if polls and self._core.settings.per_second is not None:
            # One of them looks again if all would sleep past a grant that only time makes possible.
            deadline = self._core.next_deadline(now)
            if all(poll.until > deadline for poll in polls):
                polls[0].wake()

    def _wake(self) -> None:
        for client in self._core.take_updated():
            poll = self._polls.pop(client, None)
            if poll is not None:
                poll.wake()


class _PendingPoll:
    def __init__(self, update: asyncio.Future[None], until: float) -> None:
        self.update = update
        self.until = until
        """When it looks again without being woken."""

    def wake(self) -> None:
        with suppress(RuntimeError):  # its loop was closed
            self.update.get_loop().call_soon_threadsafe(resolve, self.update, None)


_BEAT_SECONDS = 0.1
_LONGEST_STEP = 0.25
"""Seconds between two readings of a running clock, and the most that one of them counts. Chosen: a
busy machine delays the readings by less, and a stopped process loses next to nothing."""


class RunningClock:
    """Seconds during which this process ran.

    It must be read often: of a longer pause only ``_LONGEST_STEP`` counts. A limiter that was
    stopped, or whose machine was suspended, receives no renewals meanwhile; by a usual clock it
    would find all leases expired and grant the same permits again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock()
        self._ran = 0.0

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            self._ran += min(now - self._last, _LONGEST_STEP)
            self._last = now
            return self._ran

    def keep_running(self) -> None:
        """Read it from now on in a thread, for as long as the process lives."""
        threading.Thread(target=self._beat, name="limiter-clock", daemon=True).start()

    def _beat(self) -> None:
        while True:
            self()
            time.sleep(_BEAT_SECONDS)


class LocalTransport:
    """Carries messages to a host in this process."""

    def __init__(self, host: LimiterHost) -> None:
        self._host = host
        self.take = host.take
        self.give_back = host.give_back

    async def exchange(self, batch: Batch) -> LimiterReply:
        return self._host.exchange(batch)

    async def wait(self, poll: Poll) -> LimiterReply:
        return await self._host.wait(poll)

    def detach(self, farewell: Batch) -> None:
        self._host.exchange(farewell)


def local_host(
    settings: LimiterSettings, clock: Callable[[], float] = time.monotonic
) -> LimiterHost:
    """Make a limiter that only holders of the returned object share."""
    return LimiterHost(LimiterCore(settings, clock(), incarnation=uuid4().hex[:8]), clock)


def local_limiter(
    settings: LimiterSettings, clock: Callable[[], float] = time.monotonic
) -> Limiter:
    """Make a private limiter for use within one event loop."""
    return Limiter(LocalTransport(local_host(settings, clock)))


def shared_host(name: str, settings: LimiterSettings, *, apply: bool) -> LimiterHost:
    """Return the limiter that all tools of this process with this ``limiter_name`` share."""
    host = runtime.shared((LimiterHost, name), lambda: local_host(settings))
    if host.settings != settings:
        settle_difference(name, host.settings, settings, host.configure if apply else None)
    return host


def settle_difference(
    limiter: str,
    running: LimiterSettings,
    asked: LimiterSettings,
    apply: Callable[[LimiterSettings], object] | None,
    *,
    command: str = "sfusion limiter --resize N",
) -> None:
    """Warn that two callers want different settings of one limiter.

    The newer ones are applied if asked to; ``command`` does so by hand.
    """
    different = [
        field.name
        for field in fields(asked)
        if getattr(asked, field.name) != getattr(running, field.name)
    ]
    has = ", ".join(f"{name} {getattr(running, name)}" for name in different)
    wants = ", ".join(f"{name} {getattr(asked, name)}" for name in different)
    if apply is not None:
        apply(asked)
        logger.warning(
            "limiter %r ran with %s; now it runs with %s, as a later caller asked",
            limiter,
            has,
            wants,
        )
    else:
        logger.warning(
            "limiter %r already runs with %s, so %s is NOT in force here; "
            "set rate_limit_mismatch: apply in the tool config, or use `%s`",
            limiter,
            has,
            wants,
            command,
        )
