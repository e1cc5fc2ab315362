"""Things that live as long as an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")


async def before_loop_ends(close: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
    """Have ``close`` awaited when the running loop shuts down: advance once and keep the generator.

    ``asyncio.run`` closes every live asynchronous generator, after it cancelled the tasks and before it closes the
    loop; so users of a tool need not know that there is something to close.
    """
    try:
        yield
    finally:
        await close()


async def in_daemon_thread(work: Callable[[], T]) -> T:
    """Do something that blocks in a thread which nobody waits for: a process may end while it is stuck there.

    ``asyncio.to_thread`` uses threads that the interpreter joins at its end, for ever if need be.
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
        with suppress(RuntimeError):  # the loop has been closed: nobody wants to know any more
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=run, name="sfusion", daemon=True).start()
    return await done


class PerLoop(Generic[T]):
    """One value for each event loop, made when it is first asked for there."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._values: WeakKeyDictionary[asyncio.AbstractEventLoop, T] = WeakKeyDictionary()

    def get(self) -> T:
        """The value of the running loop."""
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            value = self._values[loop] = self._make()
        return value

    def peek(self) -> T | None:
        """The running loop's value; None when nobody has asked for it."""
        return self._values.get(asyncio.get_running_loop())

    def pop(self) -> T | None:
        """Take the running loop's value out; None when there is none."""
        return self._values.pop(asyncio.get_running_loop(), None)
