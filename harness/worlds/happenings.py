"""What happens to a simulated cluster at given times: deaths, pauses, crashes, other limits."""

from __future__ import annotations

import asyncio

from sfusion.fakes.faults.chance import uniform
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.scenarios.events import EventPart
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.worlds.limiter_place import LimiterPlace
from sfusion.harness.worlds.recorder import Recorder
from sfusion.harness.worlds.worker import Worker


class Happenings:
    """Carries out the events of a scenario."""

    def __init__(
        self,
        scenario: Scenario,
        workers: list[Worker],
        sandboxes: list[FakeSandbox],
        place: LimiterPlace | None,
        recorder: Recorder,
    ) -> None:
        self._scenario = scenario
        self._workers = workers
        self._sandboxes = sandboxes
        self._place = place
        self._recorder = recorder

    async def happen(self, event: EventPart) -> None:
        """Wait for its time and let it happen."""
        await asyncio.sleep(event.at)
        names = self._scenario.cluster.workers
        chosen = [worker for worker in self._workers if worker.name in event.workers(names)]
        seconds = event.seconds
        match event.kind:
            case "kill" if event.target == "limiter":
                await self._kill_limiter(seconds)
            case "kill":
                self._recorder.note("world", "killed", target=event.target)
                await asyncio.gather(*(worker.die() for worker in chosen))
            case "pause":
                await self._pause(chosen[0], seconds or 0.0)
            case "cut_off":
                await self._cut_off(chosen[0], seconds or 0.0)
            case "restart":
                self._restart(event.target)
            case "crash":
                for sandbox in self._aimed(event):
                    sandbox.crash(restart_after=seconds)
            case "wedge":
                for sandbox in self._aimed(event):
                    sandbox.wedge(ping=event.ping, seconds=seconds)
            case "resize":
                if self._place is not None:
                    self._place.resize(event.target)
            case "cancel":
                self._cancel(event.target)

    async def _kill_limiter(self, seconds: float | None) -> None:
        if self._place is not None:
            self._place.kill()
            if seconds is not None:
                await asyncio.sleep(seconds)
                self._place.start()

    def _restart(self, what: str) -> None:
        if what == "limiter" and self._place is not None:
            self._place.start()
        for sandbox in self._sandboxes if what == "sandbox" else ():
            sandbox.restart()

    async def _pause(self, worker: Worker, seconds: float) -> None:
        self._recorder.note("world", "worker_paused", worker=worker.name, seconds=seconds)
        worker.link.hold()
        await asyncio.sleep(seconds)
        worker.link.release()
        self._recorder.note("world", "worker_resumed", worker=worker.name)

    async def _cut_off(self, worker: Worker, seconds: float) -> None:
        self._recorder.note("world", "cut_off", worker=worker.name, seconds=seconds)
        worker.link.cut(True)
        await asyncio.sleep(seconds)
        worker.link.cut(False)
        self._recorder.note("world", "reconnected", worker=worker.name)

    def _aimed(self, event: EventPart) -> list[FakeSandbox]:
        if event.target == "sandbox":
            return self._sandboxes
        return [self._sandboxes[int(str(event.target).removeprefix("sandbox-")) - 1]]

    def _cancel(self, share: float) -> None:
        for worker in self._workers:
            for call, task in worker.calls.items():
                if uniform(self._scenario.seed, "cancel event", call) < share:
                    task.cancel()
