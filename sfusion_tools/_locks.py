"""A lock for state that finalisers change too."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


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
