"""Schedules: the order in which world sim runs callbacks that are ready at the same time.

One event loop plays many processes, so it may run in any order what real processes, networks and
clocks could order either way, and nothing else:

- The callbacks of one process keep their order, as in a real event loop (``call_soon`` is first in,
first out).
- What arrives over a connection keeps its order on that connection.
- An arrival and a timer wait for the callbacks of their process that were ready before them; they
may be late
  compared with everything else. Of two timers of a process, the one that is due earlier fires
  first.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from typing import Any

from ..scenarios.parts import SchedulePart

DRIVER = "driver"
"""The process of all that belongs to no other."""
_PROCESS: ContextVar[str] = ContextVar("process", default=DRIVER)
_PATIENCE = 5_000
"""Steps after which the first in the queue runs in any case: a process that polls must not stop all
others."""
_CHANGES = 3
_FARTHEST_CHANGE = 17
"""Changes of priority are drawn from the first 2**17 choices, early ones with a higher density."""


@contextmanager
def running_as(process: str) -> Iterator[None]:
    """Let tasks and callbacks that are created here belong to a simulated process."""
    token = _PROCESS.set(process)
    try:
        yield
    finally:
        _PROCESS.reset(token)


class ArrivalHandle(asyncio.Handle):
    """A callback for something that arrives over a connection; ``end`` is the number of the
    receiving end."""

    __slots__ = ("end",)

    def __init__(
        self,
        callback: Any,
        args: Any,
        loop: asyncio.AbstractEventLoop,
        context: Context,
        *,
        end: int,
    ) -> None:
        super().__init__(callback, args, loop, context)
        self.end = end


Schedule = Callable[[int, list[Hashable]], int]
"""Chooses among callbacks that could run next: gets the number of the step and the source of each
callback, and returns the number of one of them. A source is what keeps its own order: process,
connection or timer."""


class _Priority:
    """Probabilistic concurrency testing: random priorities, and a few changes at random steps."""

    def __init__(self, seed: int, changes: int) -> None:
        generator = random.Random(f"schedule {seed}")
        self._draw = generator.random
        self._changes = {int(2 ** generator.uniform(0, _FARTHEST_CHANGE)) for _ in range(changes)}
        self._priorities: dict[Hashable, float] = {}
        self._choices = 0

    def __call__(self, _: int, sources: list[Hashable]) -> int:
        self._choices += 1
        for source in sources:
            if source not in self._priorities:
                self._priorities[source] = self._draw()
        chosen = self._highest(sources)
        if self._choices in self._changes:
            self._priorities[sources[chosen]] = -float(self._choices)
            chosen = self._highest(sources)
        if isinstance(sources[chosen], tuple):  # a timer, which fires once
            del self._priorities[sources[chosen]]
        return chosen

    def _highest(self, sources: list[Hashable]) -> int:
        return max(range(len(sources)), key=lambda number: self._priorities[sources[number]])


def make_schedule(part: SchedulePart) -> Schedule:
    if part.random is not None:
        draw = random.Random(f"schedule {part.random}").random
        return lambda _, sources: int(draw() * len(sources))
    if part.priority is not None:
        return _Priority(part.priority, _CHANGES if part.changes is None else part.changes)
    # Deviations from first in, first out; one that is not possible is left out.
    numbers = dict(part.deviations or ())

    def deviate(step: int, sources: list[Hashable]) -> int:
        number = numbers.get(step, 0)
        return number if number < len(sources) else 0

    return deviate


class _Ready:
    """A callback in the queue."""

    __slots__ = ("due", "handle", "process", "source")

    def __init__(self, handle: asyncio.Handle, number: int) -> None:
        context: Context = handle._context  # type: ignore[attr-defined] # not in typeshed
        self.handle = handle
        self.process = context.get(_PROCESS, DRIVER)
        self.due: float | None = None
        self.source: Hashable = self.process
        if isinstance(handle, ArrivalHandle):
            self.source = handle.end
        elif isinstance(handle, asyncio.TimerHandle):
            self.due = handle.when()
            self.source = ("timer", number)


class ScheduledQueue:
    """Takes the place of an event loop's queue of ready callbacks."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._queue: list[_Ready] = []
        self._added = 0
        self._waited = 0
        self.steps = 0
        self.deviations: list[tuple[int, int]] = []
        """The steps in which another callback than the first in the queue ran, and its number among
        those possible."""
        self.is_over = False
        """Set when the run has ended: what closes connections then runs first in, first out, and
        does not count."""

    def append(self, handle: asyncio.Handle) -> None:
        self._added += 1
        self._queue.append(_Ready(handle, self._added))

    def popleft(self) -> asyncio.Handle:
        """Remove and return the callback to run next."""
        queue = self._queue
        if self.is_over:
            return queue.pop(0).handle
        for place, ready in enumerate(queue):
            # Does nothing, so it is no step: which timers a library starts and cancels depends on
            # its version.
            if ready.handle.cancelled():
                return queue.pop(place).handle
        self.steps += 1
        place = 0
        if len(queue) > 1 and self._waited < _PATIENCE:
            possible = _possible(queue)
            if len(possible) > 1:
                sources = [queue[candidate].source for candidate in possible]
                chosen = self._schedule(self.steps, sources)
                if chosen:
                    self.deviations.append((self.steps, chosen))
                    place = possible[chosen]
        self._waited = self._waited + 1 if place else 0
        return queue.pop(place).handle

    def clear(self) -> None:
        self._queue.clear()

    def __len__(self) -> int:
        return len(self._queue)


def _possible(queue: list[_Ready]) -> list[int]:
    """Return the places of the callbacks that may run next, the first of the queue first."""
    found: list[int] = []
    busy: set[str] = set()
    met: set[Hashable] = set()
    due: dict[str, float] = {}
    for place, ready in enumerate(queue):
        if ready.process in busy:
            met.add(ready.source)
            continue
        if ready.due is not None:
            if due.setdefault(ready.process, ready.due) >= ready.due:
                found.append(place)
            continue
        if ready.source not in met:
            met.add(ready.source)
            found.append(place)
        if ready.source is ready.process:
            busy.add(ready.process)
    return found
