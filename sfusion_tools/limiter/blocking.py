"""The limiter for callers without an event loop: threads, and those who call the Ray actor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from uuid import uuid4

from sfusion_tools._loops import LoopThread
from sfusion_tools.limiter.client import LeasedPermit, Limiter, Transport

logger = logging.getLogger(__name__)

CALLERS = "callers"
"""The name of the one client that stands for all who call the actor directly."""


class BlockingLimiter:
    """Permits for threads; all threads that use one object share one client of the limiter."""

    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._thread = LoopThread("sfusion limiter")

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[LeasedPermit]:
        """Hold a permit. After the block it is back at the limiter."""
        entered: Future[LeasedPermit] = Future()
        leave = asyncio.Event()
        # The permit is held by a coroutine, so that it returns whatever happens to this thread.
        holding = self._thread.start(self._hold(timeout, entered, leave))
        try:
            yield entered.result()
        finally:
            self._thread.call_soon(leave.set)
            if entered.done():
                holding.result()
            else:
                holding.cancel()  # this thread was interrupted while it waited

    async def _hold(
        self, timeout: float | None, entered: Future[LeasedPermit], leave: asyncio.Event
    ) -> None:
        try:
            async with self._limiter.permit(timeout) as permit:
                entered.set_result(permit)
                await leave.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)
        else:
            await self._limiter.flush(at_once=True)

    def close(self) -> None:
        """Detach from the limiter and end the thread."""
        self._thread.start(self._limiter.aclose()).result()
        self._thread.close()


class DirectCallers:
    """Permits for those who call the limiter's actor directly, as verl's original design does.

    Nothing renews these permits, so they have no lease: they are out until released. They are in
    the cluster's store before their caller hears of them, so a restart of the actor loses none. A
    thread of its own serves them, so that no number of waiters can block a release.
    """

    def __init__(
        self, transport: Transport, names: Iterable[str], write: Callable[[list[str]], None]
    ) -> None:
        """Serve on with the permits that are out, by their ``names``.

        ``write`` stores the names of all of them, oldest first.
        """
        names = list(names)
        self._limiter = Limiter(transport, name=CALLERS, held=map(permit_id, names))
        self._permits: dict[str, LeasedPermit] = {
            name: self._limiter.adopt(permit_id(name)) for name in names
        }
        self._store = write
        self._writing: asyncio.Task[None] | None = None
        self._thread = LoopThread("sfusion callers")

    def acquire(self) -> Future[str]:
        """Wait in the queue for a permit; the result is its name."""
        return self._thread.start(self._acquire())

    def release(self, name: str | None) -> Future[bool]:
        """Release that permit, or the oldest one that is out.

        The result is False if there is none.
        """
        return self._thread.start(self._release(name))

    async def _acquire(self) -> str:
        permit = await self._limiter.permit().__aenter__()
        # A permit that is handed on keeps its id, also after a restart, so each acquisition gets a
        # name of its own: otherwise the second release by one caller would count as the first
        # release by another.
        name = f"{permit.id}.{uuid4().hex[:12]}"
        self._permits[name] = permit
        try:
            await self._write()
        except BaseException:
            await self._release(name)
            raise
        return name

    async def _release(self, name: str | None) -> bool:
        if name is None:
            name = next(iter(self._permits), "")
        permit = self._permits.pop(name, None)
        if permit is None:
            logger.warning("refused to release %s: no such permit is out", name or "a permit")
            return False
        await permit.__aexit__()
        await self._limiter.flush(at_once=True)
        await self._write()
        return True

    async def _write(self) -> None:
        """Store what is out; changes that come together are stored together."""
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon())
        await asyncio.shield(self._writing)

    async def _write_soon(self) -> None:
        await asyncio.sleep(0)
        self._writing = None
        self._store(list(self._permits))


def permit_id(name: str) -> str:
    """Return the id of the permit that was acquired under this name."""
    return name.rpartition(".")[0]
