"""Blocking work beside an event loop, a loop for code that blocks, and a lock."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from types import MethodType
from typing import Any, TypeVar

T = TypeVar("T")


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run blocking work in a thread that does not keep the process from exiting.

    ``asyncio.to_thread`` uses threads that the interpreter joins at exit, for ever if they are
    stuck.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled caller leaves it alone

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="sfusion", daemon=True).start()
    return asyncio.wrap_future(done)


def resolve(future: asyncio.Future[T], value: T) -> None:
    """Give a future its result, unless it has one or was cancelled."""
    if not future.done():
        future.set_result(value)


class LoopThread:
    """An event loop in a daemon thread of its own."""

    def __init__(self, name: str) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # Its end also cancels what still runs. It runs the loop, which is possible here but not in
        # the caller's thread if that has a running loop of its own.
        with self._runner:
            self._loop.run_forever()

    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine in the loop; cancelling the future cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and block until it is done.

        If waiting is interrupted, the coroutine is cancelled.
        """
        done = self.start(work)
        try:
            # A signal that comes just before a thread blocks does not wake it, so Ctrl-C is looked
            # for now and then.
            while not wait([done], timeout=0.5).done:
                pass
            return done.result()
        except BaseException:
            done.cancel()
            raise

    def call_soon(self, work: Callable[[], object]) -> None:
        self._loop.call_soon_threadsafe(work)

    def close(self) -> None:
        self.call_soon(self._loop.stop)
        self._thread.join()


def in_own_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop that ends with it, and block until it is done.

    The caller's loop is not touched.
    """
    thread = LoopThread("sfusion")
    try:
        return thread.run(work)
    finally:
        thread.close()


def tells_real_time(loop: asyncio.AbstractEventLoop) -> bool:
    """False if the loop keeps its own time, such as a simulated one.

    That time means nothing to other loops.
    """
    if type(loop).__module__ == "uvloop":
        return True
    clock = loop.time
    return isinstance(clock, MethodType) and clock.__func__ is asyncio.BaseEventLoop.time


class DeferringLock:
    """A lock with work that waits for it without blocking.

    The garbage collector closes abandoned coroutines in whatever thread it runs, also in one that
    holds the lock. What the end of a coroutine may do must therefore never take the lock: it is
    deferred until the lock is next taken.
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
