"""Applies a server model to requests, on the time of the running loop."""

from __future__ import annotations

import asyncio
import math
from typing import Any

from sfusion_tools._loops import resolve

from ..faults import ContentFault
from ..wire.app import Request, Visit
from ..wire.message import Answer
from .body import spoil
from .models import BusyLoop, Queue, QueueLine, Quota, QuotaCounter, SharedCores, Unbounded

_Running = asyncio.Future[bool]
"""A program that runs: whether it came to its end or was stopped."""


class Gate:
    """Admits requests, makes them wait or turns them away, and lets the time of programs pass."""

    def __init__(self, model: Unbounded | Queue | Quota) -> None:
        self.model = model
        self._quota = QuotaCounter(model) if isinstance(model, Quota) else None
        self._line = QueueLine(model) if isinstance(model, Queue) else None
        self._cores = SharedCores[_Running](model.cores) if model.cores is not None else None
        self._loop = BusyLoop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Requests that wait for admission."""
        return len(self._line.waiting) if self._line is not None else 0

    async def admit(self) -> Answer | None:
        """Wait for admission; return the answer to a request that is turned away."""
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
                self.leave()  # its turn came just as the request was cancelled: pass it on
            else:
                line.give_up(waiter)
            raise

    def leave(self) -> None:
        """End a request that was admitted."""
        if self._quota is not None:
            self._quota.leave()
        elif self._line is not None:
            self._admit_next(self._line)

    def _admit_next(self, line: QueueLine) -> None:
        """Give a place to the first waiter whose request was not cancelled; free it if all were."""
        while True:
            waiter = line.leave()
            if not isinstance(waiter, asyncio.Future):
                return  # nobody waits
            if not waiter.done():
                waiter.set_result(None)
                return

    async def wait_for_loop(self) -> None:
        """Let a ping wait while the loop is blocked by programs being started."""
        if self.model.spawn_cost:
            wait = self._loop.wait(asyncio.get_running_loop().time())
            if wait > 0:
                await asyncio.sleep(wait)

    async def spawn(self) -> None:
        """Take a turn of the loop to start a program."""
        if self.model.spawn_cost:
            now = asyncio.get_running_loop().time()
            await asyncio.sleep(self._loop.take(now, self.model.spawn_cost))

    async def work(self, seconds: float, limit: float = math.inf) -> float | None:
        """Let the seconds of a program pass, more slowly when cores are shared.

        It gets at most ``limit`` by the clock. Return how long it took by the clock; None if it was
        stopped at the limit.
        """
        cores = self._cores
        if cores is None:
            return await pass_time(seconds, limit)

        loop = asyncio.get_running_loop()
        done: _Running = loop.create_future()
        began = loop.time()
        cores.add(done, seconds, began)
        self._set_timer(cores)
        stop_at_limit = None
        if math.isfinite(limit):
            stop_at_limit = loop.call_later(limit, resolve, done, False)
        try:
            ended = await done
            return round(loop.time() - began, 6) if ended else None
        finally:
            if stop_at_limit is not None:
                stop_at_limit.cancel()
            cores.remove(done, loop.time())
            self._set_timer(cores)

    def _set_timer(self, cores: SharedCores[_Running]) -> None:
        """Wake up when the next programs end, which changes with each that comes or goes."""
        self.close()
        next_end = cores.next_end()
        if next_end is None:
            return
        when, programs = next_end
        if math.isfinite(when):
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(when, self._end, cores, programs)

    def _end(self, cores: SharedCores[_Running], programs: list[_Running]) -> None:
        self._timer = None
        cores.end(programs, asyncio.get_running_loop().time())
        for done in programs:
            resolve(done, True)
        self._set_timer(cores)

    def close(self) -> None:
        """Cancel the timer: no program ends by itself any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


async def pass_time(seconds: float, limit: float = math.inf) -> float | None:
    """Let the seconds of a program pass that has a core of its own.

    Return how long it took; None if it was stopped at the limit.
    """
    await asyncio.sleep(min(seconds, limit))
    return None if seconds > limit else seconds


def turned_away(status: int, retry_after: float | None) -> Answer:
    """The answer of a gateway at its limit."""
    phrase = "Too Many Requests" if status == 429 else "Service Unavailable"
    headers = () if retry_after is None else (("retry-after", f"{retry_after:g}"),)
    return Answer.json({"detail": phrase}, status=status, headers=headers)


class GatedVisit(Visit):
    """A request to the fake sandbox or to a proxy, which a gate lets in."""

    def __init__(self, request: Request, gate: Gate) -> None:
        super().__init__(request)
        self.gate = gate
        self.fields: dict[str, Any] = {}
        """The body of a request to run code."""

    async def admit(self) -> Answer | None:
        return await self.gate.admit()

    def leave(self) -> None:
        self.gate.leave()

    def spoil(self, answer: Answer | None, action: ContentFault) -> tuple[Answer, float]:
        return spoil(self.request.path, self.fields, answer, action)
