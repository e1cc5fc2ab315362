"""Clean-up at the end of an event loop, and blocking work beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

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
