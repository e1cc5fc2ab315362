"""A simulated worker process: it can be killed, paused and cut off from the limiter."""

from __future__ import annotations

import asyncio
from typing import Any

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.calling import call_facts
from sfusion.harness.lab.worlds.play import note_never_made
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.sim_limiter import Link
from sfusion.harness.lab.worlds.worker import Worker
from sfusion_tools.rollout import RolloutLimits


class SimWorker(Worker):
    """A worker that shares the event loop with all the others; ``link`` is None without a limiter."""

    def __init__(
        self, name: str, scenario: Scenario, recorder: Recorder, link: Link | None, bounds: RolloutLimits
    ) -> None:
        super().__init__(name, scenario, recorder, link, bounds)
        self._link = link

    async def pause(self) -> None:
        """Hold back all messages to and from the limiter."""
        if self._link is not None:
            self._link.hold()

    async def resume(self) -> None:
        """Let messages pass again."""
        if self._link is not None:
            self._link.release()

    async def cut_off(self, off: bool) -> None:
        """Cut the connection to the limiter, or restore it."""
        if self._link is not None:
            self._link.cut(off)

    async def die(self) -> None:
        """End like a killed process: permits are not released, connections drop."""
        if not self.alive:
            return
        self.alive = False
        if self._link is not None:
            self._link.die()
        self._recorder.note("world", "worker_died", worker=self.name)
        for call in self._calls:
            if (prepared := self._not_made.get(call)) is not None:
                note_never_made(self._recorder, call_facts(prepared, self.name, self._scenario.default_timeout))
            else:
                self._recorder.note("world", "lost", call=call, worker=self.name)
        await self._cancel_all()
        if self._limiter is not None:
            await self._limiter.aclose()

    async def flush(self) -> None:
        """Send what the limiter's client still holds back."""
        if self.alive and self._limiter is not None:
            await self._limiter.flush()

    async def close(self) -> None:
        """Cancel what is under way, then close."""
        if self.alive:
            await self._cancel_all()
            await super().close()

    async def _cancel_all(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._calls.values(), *self._rollouts.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
