"""Where requests that get no answer wait until the client disconnects, time is up, or all are woken."""

from __future__ import annotations

import asyncio

from sfusion.fakes.wire.connection import Connection


class Parking:
    """A place to wait that costs one future per request and no task."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self, connection: Connection, seconds: float | None = None) -> None:
        """Wait until the client disconnects, ``seconds`` have passed, or ``wake_all`` is called."""
        if connection.lost:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        gone = connection.gone()

        def wake(_: object = None) -> None:
            if not waiter.done():
                waiter.set_result(None)

        self._waiters.add(waiter)
        gone.add_done_callback(wake)
        timer = loop.call_later(seconds, wake) if seconds is not None else None
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            gone.remove_done_callback(wake)
            if timer is not None:
                timer.cancel()

    def wake_all(self) -> None:
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)
