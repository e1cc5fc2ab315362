"""The limiter for code that blocks: threads wait for permits that a separate event loop acquires."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sfusion_tools.limiter.client import Limiter, Permit

T = TypeVar("T")


class LoopThread:
    """A daemon thread with an event loop."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Run a coroutine in the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def call_soon(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        self.call_soon(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingLimiter:
    """Permits for threads; all threads that use one object share one client of the limiter."""

    def __init__(self, make: Callable[[], Limiter]) -> None:
        self._limiter = make()
        self._thread = LoopThread("sfusion limiter")

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[Permit]:
        """Hold a permit. After the block it is back at the limiter."""
        entered: concurrent.futures.Future[Permit] = concurrent.futures.Future()
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
        self, timeout: float | None, entered: concurrent.futures.Future[Permit], leave: asyncio.Event
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
