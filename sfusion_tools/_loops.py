"""Clean-up at the end of an event loop, blocking work beside it, a loop for code that blocks, and a lock."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from types import MethodType
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


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
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
    return done


def in_own_loop(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in a loop and a thread of its own, and block until it is done.

    The caller's own loop is not touched, whether it is running or not. If waiting is interrupted, as by Ctrl-C, the
    coroutine is cancelled first.
    """
    begun: Future[Callable[[], object]] = Future()
    done: Future[T] = Future()

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        begun.set_result(lambda: loop.call_soon_threadsafe(task.cancel))
        return await make()

    def run() -> None:
        try:
            done.set_result(asyncio.run(main()))
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="sfusion", daemon=True)
    try:
        thread.start()
        # A signal that comes just before a thread blocks does not wake it, so Ctrl-C is looked for now and then.
        while not wait([done], timeout=0.5).done:
            pass
        return done.result()
    except BaseException:
        if thread.is_alive():
            either: list[Future[Any]] = [begun, done]
            wait(either, return_when=FIRST_COMPLETED)
            if not done.done():
                with suppress(RuntimeError):  # it has just ended
                    begun.result()()
        raise
    finally:
        if thread.is_alive():
            thread.join()


def tells_real_time(loop: asyncio.AbstractEventLoop) -> bool:
    """False if the loop keeps its own time, such as a simulated one, which means nothing to other loops."""
    if type(loop).__module__ == "uvloop":
        return True
    clock = loop.time
    return isinstance(clock, MethodType) and clock.__func__ is asyncio.BaseEventLoop.time


class DeferringLock:
    """A lock with work that waits for it without blocking.

    The garbage collector closes abandoned coroutines in whatever thread it runs, also in one that holds the lock. What
    the end of a coroutine may do must therefore never take the lock: it is deferred until the lock is next taken.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._deferred: deque[Callable[[], object]] = deque()

    def defer(self, work: Callable[[], object]) -> None:
        """Do this under the lock before anyone who takes it from now on."""
        self._deferred.append(work)

    def __enter__(self) -> None:
        self._lock.acquire()
        try:
            while self._deferred:
                self._deferred.popleft()()
        except BaseException:
            self._lock.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._lock.release()
