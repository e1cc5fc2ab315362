"""The time limits of one event loop, behind a single timer.

Nearly every time limit of a call is dropped before it is reached. ``asyncio.timeout`` makes a timer of the loop for
each, which costs several times as much as noting it here.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

from sfusion_tools.runtime import LoopResource, LoopScope

SPARED = 64
"""So many dropped deadlines may stay in the heap, whatever the number of the others."""


Deadline = list[Any]
"""[when, number, what to do then or None once it is dropped or reached]: a list is compared without calling Python."""


class Deadlines(LoopResource):
    """The deadlines of one loop; the first of them is the loop's timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._heap: list[Deadline] = []
        self._numbers = count()
        self._dead = 0
        self._timer: asyncio.Handle | None = None
        self._timer_at = math.inf

    @classmethod
    def of(cls, scope: LoopScope) -> Deadlines:
        """Return the deadlines of a loop."""
        return scope.get(cls, lambda: cls(scope.loop))

    @property
    def pending(self) -> int:
        """How many deadlines were neither reached nor dropped."""
        return len(self._heap) - self._dead

    def at(self, when: float, act: Callable[[], object]) -> Deadline:
        """Call ``act`` at this time of the loop, unless what is returned is dropped before."""
        deadline: Deadline = [when, next(self._numbers), act]
        heapq.heappush(self._heap, deadline)
        if when < self._timer_at:
            self._arm(when)
        return deadline

    def drop(self, deadline: Deadline) -> None:
        """The time no longer matters; nothing that waits for it is referenced afterwards."""
        if deadline[2] is None:
            return
        deadline[2] = None
        self._dead += 1
        if self._dead > SPARED and self._dead * 2 > len(self._heap):
            self._heap[:] = [kept for kept in self._heap if kept[2] is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def abandon(self) -> None:
        self._clear()
        self._arm(math.inf)

    def forget(self) -> None:
        self._clear()
        self._timer = None  # it is the parent's

    def _clear(self) -> None:
        for deadline in self._heap:
            deadline[2] = None
        self._heap.clear()
        self._dead = 0

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = None if when == math.inf else self.loop.call_at(when, self._strike)

    def _strike(self) -> None:
        self._timer, now, heap = None, max(self.loop.time(), self._timer_at), self._heap
        acts = []
        while heap and (heap[0][0] <= now or heap[0][2] is None):
            deadline = heapq.heappop(heap)
            if deadline[2] is None:
                self._dead -= 1
            else:
                acts.append(deadline[2])
                deadline[2] = None
        self._arm(heap[0][0] if heap else math.inf)
        for act in acts:
            act()


class TimeLimit:
    """Cancels what runs inside it after some seconds, and turns that cancellation into TimeoutError.

    The same as ``asyncio.timeout``, for the shared timer.
    """

    __slots__ = ("_cancelling", "_deadline", "_deadlines", "_expired", "_seconds", "_task")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self._deadlines = deadlines
        self._seconds = seconds
        self._expired = False

    def __enter__(self) -> None:
        loop = self._deadlines.loop
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._deadline = self._deadlines.at(loop.time() + self._seconds, self._expire)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._deadlines.drop(self._deadline)
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _expire(self) -> None:
        self._expired = True
        self._task.cancel()
