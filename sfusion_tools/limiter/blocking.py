"""The limiter for code that blocks: threads wait for permits that a separate event loop acquires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sfusion_tools.limiter.client import Limiter, Permit


class BlockingLimiter:
    """Permits for threads; all threads that use one object share one client of the limiter."""

    def __init__(self, make: Callable[[], Limiter]) -> None:
        self._limiter = make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sfusion limiter", daemon=True)
        self._thread.start()

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[Permit]:
        permit = asyncio.run_coroutine_threadsafe(self._limiter.acquire(timeout), self._loop).result()
        try:
            yield permit
        finally:
            # Wait for it: after this block the permit must be visibly free.
            asyncio.run_coroutine_threadsafe(self._release(permit), self._loop).result()

    async def _release(self, permit: Permit) -> None:
        permit.release()

    def close(self) -> None:
        """Detach from the limiter and end the thread."""
        asyncio.run_coroutine_threadsafe(self._limiter.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
