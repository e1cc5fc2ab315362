"""Values and clean-up bound to the life of an event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def before_loop_ends(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Await ``close`` when the running loop shuts down: advance this generator once, and keep it.

    ``asyncio.run`` closes every live asynchronous generator after cancelling the tasks and before closing the loop, so
    users of a tool need not close anything.
    """
    try:
        yield
    finally:
        await close()


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Run blocking work in a thread that does not keep the process from exiting.

    ``asyncio.to_thread`` uses threads that the interpreter joins at exit, for ever if they are stuck.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            how(value)

    def run() -> None:
        try:
            outcome: tuple[Callable[[Any], None], Any] = done.set_result, work()
        except BaseException as error:
            outcome = done.set_exception, error
        with suppress(RuntimeError):  # the loop is closed: nothing to notify
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="sfusion", daemon=True).start()
    return await done


def is_simulated() -> bool:
    """True if the running loop has a clock of its own, so that its times mean nothing to other loops."""
    return abs(asyncio.get_running_loop().time() - time.monotonic()) > 60


class PerLoop(Generic[T]):
    """One value for each event loop, made on first use."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            value = self._values[loop] = self._make()
        return value

    def peek(self) -> T | None:
        """Return the running loop's value, None if it has not been made."""
        return self._values.get(asyncio.get_running_loop())

    def pop(self) -> T | None:
        """Remove and return the running loop's value, None if there is none."""
        return self._values.pop(asyncio.get_running_loop(), None)
