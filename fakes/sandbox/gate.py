"""The gate: applies a server model to requests, on the running loop's time."""

from __future__ import annotations

import asyncio
import itertools
import math

from sfusion.fakes.sandbox.models import BusyLoop, Queue, QueueLine, Quota, QuotaCounter, SharedCores, Unbounded
from sfusion.fakes.wire import Answer


class Gate:
    """Lets requests in, makes them wait or turns them away, and lets programs' time pass."""

    def __init__(self, model: Unbounded | Queue | Quota) -> None:
        self.model = model
        self._quota = QuotaCounter(model) if isinstance(model, Quota) else None
        self._line = QueueLine(model) if isinstance(model, Queue) else None
        self._cores = SharedCores(model.cores) if model.cores is not None else None
        self._loop = BusyLoop()
        self._numbers = itertools.count()
        self._running: dict[int, asyncio.Future[None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def open(self) -> bool:
        """Is everybody let in at once?"""
        return self._quota is None and self._line is None

    async def admit(self) -> Answer | None:
        """Wait to be let in; an answer means being turned away."""
        if self._quota is not None:
            again = self._quota.admit(asyncio.get_running_loop().time())
            return None if again is None else turned_away(self._quota.model.status, again)
        if self._line is not None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            match self._line.enter(waiter):
                case "away":
                    return turned_away(self._line.model.status, self._line.model.retry_after)
                case "wait":
                    await self._wait_in(self._line, waiter)
        return None

    async def _wait_in(self, line: QueueLine, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave()  # the turn came just as the request was cut off: pass it on
            else:
                line.give_up(waiter)
            raise

    def leave(self) -> None:
        """A request that was let in is over."""
        if self._quota is not None:
            self._quota.leave()
        elif self._line is not None:
            following = self._line.leave()
            while isinstance(following, asyncio.Future) and following.done():
                following = self._line.leave()
            if isinstance(following, asyncio.Future):
                following.set_result(None)

    async def wait_for_loop(self) -> None:
        """Let a ping wait while the loop is blocked by programs being started."""
        if self.model.spawn_cost:
            wait = self._loop.wait(asyncio.get_running_loop().time())
            if wait > 0:
                await asyncio.sleep(wait)

    async def spawn(self) -> None:
        """Starting a program takes its turn of the loop."""
        if self.model.spawn_cost:
            await asyncio.sleep(self._loop.take(asyncio.get_running_loop().time(), self.model.spawn_cost))

    async def work(self, seconds: float) -> None:
        """Let a program's seconds pass, stretched when cores are shared."""
        cores = self._cores
        if cores is None:
            await asyncio.sleep(seconds)
            return
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        done: asyncio.Future[None] = loop.create_future()
        self._running[number] = done
        cores.add(number, seconds, loop.time())
        self._set_timer(cores)
        try:
            await done
        finally:
            del self._running[number]
            cores.remove(number, loop.time())
            self._set_timer(cores)

    def _set_timer(self, cores: SharedCores) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        following = cores.next_end()
        if following is not None and math.isfinite(following[0]):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(following[0], self._end, cores, following[1])

    def _end(self, cores: SharedCores, programs: list[int]) -> None:
        self._timer = None
        for program in programs:
            cores.left.pop(program, None)
            done = self._running.get(program)
            if done is not None and not done.done():
                done.set_result(None)
        self._set_timer(cores)

    def close(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def turned_away(status: int, retry_after: float | None) -> Answer:
    """The answer of a gateway that is full."""
    words = "Too Many Requests" if status == 429 else "Service Unavailable"
    headers = () if retry_after is None else (("retry-after", f"{retry_after:g}"),)
    return Answer.json({"detail": words}, status=status, headers=headers)
