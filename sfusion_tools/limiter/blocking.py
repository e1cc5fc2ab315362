"""The limiter for code that blocks: threads wait for permits that a separate event loop acquires."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sfusion_tools.limiter.client import Limiter, Permit

T = TypeVar("T")


class BlockingLimiter:
    """Permits for threads; all threads that use one object share one client of the limiter."""

    def __init__(self, make: Callable[[], Limiter]) -> None:
        self._limiter = make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sfusion limiter", daemon=True)
        self._thread.start()

    @contextmanager
    def permit(self, timeout: float | None = None) -> Iterator[Permit]:
        permit = self._run(self._limiter.permit(timeout).__aenter__())
        try:
            yield permit
        finally:
            self._run(self._release(permit))

    async def _release(self, permit: Permit) -> None:
        await permit.__aexit__()
        # Wait for the limiter: after this block the permit must be visibly free.
        await self._limiter.flush()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Detach from the limiter and end the thread."""
        self._run(self._limiter.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
