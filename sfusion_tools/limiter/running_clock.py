"""A clock that stands still while its process does not run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_BEAT_SECONDS = 0.1
_LONGEST_STEP = 0.25


class RunningClock:
    """Seconds during which this process ran. It must be read often: of a longer pause only ``_LONGEST_STEP`` counts.

    A limiter that was stopped, or whose machine was suspended, receives no renewals meanwhile; by a usual clock it
    would find all leases expired and grant the same permits again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._last = clock()
        self._ran = 0.0

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            self._ran += min(now - self._last, _LONGEST_STEP)
            self._last = now
            return self._ran

    def keep_running(self) -> None:
        """Read it from now on in a thread, for as long as the process lives."""
        threading.Thread(target=self._beat, name="limiter-clock", daemon=True).start()

    def _beat(self) -> None:
        while True:
            self()
            time.sleep(_BEAT_SECONDS)
