"""A simulated worker process: its tool, its end of the limiter, and the calls it has under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from sfusion.harness.worlds.limiter_place import Link
from sfusion.harness.worlds.recorder import Recorder
from sfusion_tools.limiter import Limiter


class Worker:
    """One of the processes that share the limiter. It can be killed, paused and cut off."""

    def __init__(self, name: str, link: Link, recorder: Recorder, make_tools: Callable[[Worker], list[Any]]) -> None:
        self.name = name
        self.link = link
        self.alive = True
        self._recorder = recorder
        self._limiter: Limiter | None = None
        self._tasks: dict[asyncio.Task[Any], str | None] = {}
        self.tools = make_tools(self)

    def is_alive(self) -> bool:
        """Has it not been killed?"""
        return self.alive

    @property
    def tool(self) -> Any:
        """The tool that its calls go to."""
        return self.tools[0]

    def limiter(self) -> Limiter:
        """Its end of the limiter, made when it is first needed."""
        if self._limiter is None:
            self._limiter = Limiter(self.link, name=self.name)
        return self._limiter

    def hear(self, event: str, facts: dict[str, Any]) -> None:
        """An event of its client; a dead process tells nothing."""
        if self.alive:
            self._recorder.note("client", event, worker=self.name, **facts)

    def run(self, work: Coroutine[Any, Any, Any], call: str | None = None) -> asyncio.Task[Any]:
        """Do something as this process; it ends when the process does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = call
        task.add_done_callback(lambda done: self._tasks.pop(done, None))
        return task

    @property
    def calls(self) -> dict[str, asyncio.Task[Any]]:
        """The calls under way."""
        return {call: task for task, call in self._tasks.items() if call is not None}

    async def die(self) -> None:
        """End as a killed process does: nothing is released, nobody is told, connections drop."""
        if not self.alive:
            return
        under_way = self.calls
        self.alive = False
        self.link.die()
        self._recorder.note("world", "worker_died", worker=self.name)
        for call in under_way:
            self._recorder.note("world", "lost", call=call, worker=self.name)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._limiter is not None:
            await self._limiter.aclose()

    async def flush(self) -> None:
        """Let the limiter hear all that happened here."""
        if self.alive and self._limiter is not None:
            await self._limiter.flush()

    async def leave(self) -> None:
        """End in an orderly way."""
        if self.alive:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for tool in self.tools:
                close = getattr(tool, "aclose", None)
                if close is not None:
                    await close()
            if self._limiter is not None:
                await self._limiter.aclose()
