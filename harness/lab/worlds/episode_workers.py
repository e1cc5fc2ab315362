"""Where episodes are played: in this process, or in a worker that can be killed."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from ...core.journal import Event
from ...errors import WorldError
from ..episodes.task import EpisodeTask
from ..shapes.episode import is_async
from .mortal import Life, start_in

Target = Callable[[EpisodeTask], Any]
MOST_PROCESSES = 16
"""Workers that are processes. Chosen: an SDK takes 200 MB in each."""
_STARTING = 90.0
"""Seconds in which a worker must have imported its client: as long as those of world ray get."""
_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes of a line from a worker. Chosen: a hundred answers, each cut to 300 characters, are far
less."""


class Told(NamedTuple):
    """How an episode ended, as its worker tells it."""

    facts: Event


class EpisodeWorker(ABC):
    """Plays episodes; what is under way ends if it is killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.may_return = False
        """Whether it is going to be started again after its death."""
        self.can_cancel = True
        """Whether an episode can be cancelled; a thread cannot."""
        self._returned = asyncio.Event()

    async def start(self) -> None:  # noqa: B027 # most are ready at once
        """Be ready to play."""

    @abstractmethod
    def play(self, task: EpisodeTask) -> asyncio.Future[Any]:
        """Begin an episode."""

    def cancel(self, name: str, work: asyncio.Future[Any]) -> None:
        """Cancel an episode that can be cancelled."""
        work.cancel()

    async def kill(self, *, may_return: bool) -> None:
        """End without warning."""
        self.is_alive = False
        self.may_return = may_return
        self._returned.clear()

    async def start_again(self) -> None:
        """Come back after a kill."""
        await self.start()
        self.is_alive = True
        self._returned.set()

    async def is_there(self) -> bool:
        """Return whether it lives, if need be when it is back; False if it never will be."""
        if not self.is_alive and self.may_return:
            await self._returned.wait()
        return self.is_alive

    def wake(self) -> None:  # noqa: B027 # only virtual time holds things back
        """Let what a kill has stopped go on, because the run is over."""

    async def stop(self) -> None:  # noqa: B027 # most end with the loop
        """End."""


class LocalWorker(EpisodeWorker):
    """Plays in this process: a coroutine in its loop, a function in a thread. It is never
    killed."""

    def __init__(self, name: str, target: Target) -> None:
        super().__init__(name)
        self._target = target
        self.can_cancel = is_async(target)

    def play(self, task: EpisodeTask) -> asyncio.Future[Any]:
        if self.can_cancel:
            return asyncio.ensure_future(self._target(task))
        return _in_thread(self._target, task)


class SimulatedWorker(EpisodeWorker):
    """A process in virtual time."""

    def __init__(self, name: str, target: Target) -> None:
        super().__init__(name)
        self._target = target
        self._life = Life()
        self._ended: list[Life] = []

    def play(self, task: EpisodeTask) -> asyncio.Future[Any]:
        return start_in(self._life, self._target(task))

    async def kill(self, *, may_return: bool) -> None:
        await super().kill(may_return=may_return)
        self._life.end()
        self._ended.append(self._life)
        self._life = Life()

    def wake(self) -> None:
        loop = asyncio.get_running_loop()
        for life in self._ended:
            life.wake(loop)


class ProcessWorker(EpisodeWorker):
    """A process of its own, which SIGKILL ends."""

    def __init__(self, name: str, source: str, *, can_cancel: bool) -> None:
        super().__init__(name)
        self.can_cancel = can_cancel
        self._source = source
        self._process: asyncio.subprocess.Process | None = None
        self._under_way: dict[str, asyncio.Future[Any]] = {}
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        command = [sys.executable, "-m", f"{__package__}.episode_process", self._source]
        self._process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_LONGEST_LINE,
        )
        try:
            said = await asyncio.wait_for(self._next_line(), _STARTING)
        except TimeoutError:
            raise WorldError(
                f"{self._source}: a worker did not import it in {_STARTING:g} s"
            ) from None
        if said is None or "failed" in said:
            why = "it ended" if said is None else said["failed"]
            raise WorldError(f"{self._source}: a worker could not start: {why}")
        self._reading = asyncio.ensure_future(self._read())

    async def _next_line(self) -> Event | None:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    async def _read(self) -> None:
        while (said := await self._next_line()) is not None:
            work = self._under_way.pop(said["episode"], None)
            if work is not None and not work.done():
                work.set_result(Told(said["facts"]))
        if self.is_alive:
            self._lose_all()

    def _lose_all(self) -> None:
        """End what was under way, because the process has ended by itself."""
        for work in self._under_way.values():
            if not work.done():
                work.set_exception(RuntimeError("the process of the client has ended by itself"))
        self._under_way.clear()

    def play(self, task: EpisodeTask) -> asyncio.Future[Any]:
        work: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._under_way[task.id] = work
        self._send({"play": task_data(task)})
        return work

    def cancel(self, name: str, work: asyncio.Future[Any]) -> None:
        self._send({"cancel": name})

    def _send(self, message: Event) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")

    async def kill(self, *, may_return: bool) -> None:
        await super().kill(may_return=may_return)
        self._under_way.clear()
        await self._end()

    async def _end(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await asyncio.wait([self._reading])

    async def stop(self) -> None:
        self.is_alive = False
        await self._end()


def task_data(task: EpisodeTask) -> Event:
    """Return what a worker is told of an episode: all but the answers."""
    hidden = [replace(step, answer="") for step in task.steps]
    return asdict(replace(task, steps=tuple(hidden), environment=dict(task.environment)))


def _in_thread(target: Target, task: EpisodeTask) -> asyncio.Future[Any]:
    """Call a synchronous client in a thread of its own, which nobody waits for at the end."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Any] = loop.create_future()

    def tell(result: Any, error: BaseException | None) -> None:
        if ended.done():
            return
        if error is None:
            ended.set_result(result)
        else:
            ended.set_exception(error)

    def work() -> None:
        result: Any = None
        problem: BaseException | None = None
        try:
            result = target(task)
        except Exception as error:
            problem = error
        except SystemExit as error:
            problem = RuntimeError(f"SystemExit: {error}")
        with suppress(RuntimeError):  # the scene is over, and its loop closed
            loop.call_soon_threadsafe(tell, result, problem)

    threading.Thread(target=work, name=f"episode-{task.id}", daemon=True).start()
    return ended
