"""How late a thread of this process comes, and when the whole process stood still."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

_LOOK = 0.01
"""Real seconds between two looks at how late threads are. Chosen."""
_STOP = 0.05
"""Real seconds by which a thread is late if the machine has stopped it. Chosen: more than any on an
idle machine, and half of ``FAIR`` where the clock is fast."""


class Lateness(threading.Thread):
    """Measures by how much a thread comes too late: little on an idle machine, much on a busy
    one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.worst = 0.0
        self.on_stop: Callable[[float], None] = lambda seconds: None
        """Called after each stop with its seconds, without those in which this process computed."""
        self._stops: list[float] = []
        """By how much it came too late, each time that this was worth noting."""
        self._looked = 0.0
        # The true ones: a fast clock comes later.
        self._clock = time.monotonic
        self._sleep = time.sleep
        self._computed = time.process_time
        self._ended = False

    def run(self) -> None:
        computed = self._computed()
        while not self._ended:
            self._sleep(_LOOK)
            # One look ends a stretch and begins the next: a stop between two would be nobody's.
            now = self._clock()
            late = now - self._looked - _LOOK
            before, computed = computed, self._computed()
            self.worst = max(self.worst, late)
            if late > _STOP:
                # Noted before the next stretch begins: who asks meanwhile sees it in one of them.
                self._stops.append(late)
            self._looked = now
            if late > _STOP:
                self.on_stop(max(0.0, late - (computed - before)))

    @property
    def stops(self) -> int:
        """Return how often the machine has stopped so far."""
        return len(self._stops)

    def worst_since(self, stops: int) -> float:
        """Return the longest stop after so many, one that it has not woken from included; 0 if
        there was none."""
        late = self._clock() - self._looked - _LOOK
        return max([*self._stops[stops:], late if late > _STOP else 0.0])

    def __enter__(self) -> Self:
        self._looked = self._clock()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self.join()
