"""The worker processes of a run as the driver sees them: which are alive, what they are doing,
what was lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError

from sfusion_tools.record import ENDINGS
from sfusion_tools.wording import counted

from ...core.journal import Event
from ...errors import WorldError
from ..scenarios.model import Scenario
from .calling import Workload
from .ray_worker import SecondDriver, WorkerSetup, create_worker, on_node, signal_process
from .recorder import Recorder
from .run_notes import note_never_made

CLOSE_SECONDS = 15.0
"""How long workers may take to exit before they are killed."""


class RayWorker:
    def __init__(
        self,
        name: str,
        node: str,
        actor: Any,
        scenario: Scenario,
        *,
        local: bool,
        connected: bool = False,
    ) -> None:
        self.name = name
        self.actor = actor
        self.pid = 0
        self.killed = False
        """Its death was ordered."""
        self.assigned: dict[str, Event] = {}
        """Calls it was given and has not answered, with the keys of the event ``called`` for
        each."""
        self.gone = asyncio.Event()
        self.next_step: str | None = "create its tools" if connected else "start"
        """What it must do before the load can begin; None when it is ready."""
        self._warms_up = scenario.own_config is None
        self._node = node
        self._local = local
        self._workload = Workload(scenario, scenario.time_scale)

    @property
    def alive(self) -> bool:
        """Is its connection to the journal open?"""
        return not self.gone.is_set()

    async def start(self) -> None:
        """Have its tools created and, if they are another class, used once; raise WorldError if
        that fails."""
        try:
            self.pid = await self.actor.start.remote()
            if self._warms_up:
                self.next_step = "finish its warm-up call"
                await self.actor.warm_up.remote()
        except RayError as error:
            raise WorldError(
                f"{self.name} could not {self.next_step}: {cause_of(error)}"
            ) from error
        self.next_step = None

    async def call(self, number: int) -> None:
        """Have a call made; return when it has ended or the process has died."""
        prepared = self._workload.prepare(number)
        self.assigned[prepared.call] = self._workload.called(prepared, self.name)
        await self.call_actor("call", number)
        del self.assigned[prepared.call]

    async def roll(self, name: str) -> str | None:
        """Have a trajectory run and return its final state; None if it was cancelled or the
        process died."""
        state: str | None = await self.call_actor("roll", name)
        return state

    async def cut_off(self, off: bool) -> None:
        """Cut the connection to the limiter, or restore it."""
        await self.call_actor("cut_off", off)

    async def pause(self) -> None:
        """Stop the process (SIGSTOP)."""
        await self.signal(signal.SIGSTOP)

    async def resume(self) -> None:
        """Let the process continue (SIGCONT)."""
        await self.signal(signal.SIGCONT)

    async def signal(self, number: int) -> None:
        """Send a signal to the process, unless it is dead."""
        if not self.alive:
            return
        if self._local:
            # It may have just died, with its journal connection still open.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
        else:
            there = signal_process.options(scheduling_strategy=on_node(self._node))
            await there.remote(self.pid, number)

    async def call_actor(self, method: str, *args: Any) -> Any:
        """Call a method of the actor and return the result; None if the process dies first."""
        answer = asyncio.ensure_future(getattr(self.actor, method).remote(*args))
        gone = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return None
            try:
                return answer.result()
            except RayActorError:
                await gone  # when its journal connection has ended, all its events are here
                return None
        finally:
            answer.cancel()
            gone.cancel()


def cause_of(error: RayError) -> str:
    """Return what another process raised, without Ray's account of it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {cause}"
    return str(error).strip().splitlines()[-1].strip()


class RayWorkers:
    """All worker processes of a run."""

    def __init__(self, scenario: Scenario, recorder: Recorder, *, local: bool) -> None:
        self._scenario = scenario
        self._recorder = recorder
        self._local = local
        self._workers: dict[str, RayWorker] = {}
        self._connected: set[str] = set()
        self.closing = False

    @property
    def workers(self) -> list[RayWorker]:
        """All workers in order, dead or alive."""
        return list(self._workers.values())

    async def start(
        self, places: dict[str, str], setup: WorkerSetup, driver: SecondDriver | None = None
    ) -> None:
        """Start workers (name -> node); with a ``driver``, that process creates and owns them."""
        if driver is not None:
            actors = await driver.create(places, setup)
        else:
            actors = {name: create_worker(name, node, setup) for name, node in places.items()}
        self._workers = {
            name: RayWorker(
                name,
                places[name],
                actor,
                self._scenario,
                local=self._local,
                connected=name in self._connected,
            )
            for name, actor in actors.items()
        }
        await asyncio.gather(*(worker.start() for worker in self.workers))

    @property
    def unready(self) -> str:
        """Say which workers are not ready for the load, and what the first of them has not done."""
        late = [worker for worker in self.workers if worker.next_step is not None]
        if not late:  # their driver has not created them, or the last became ready at this moment
            return "the workers did not start"
        first, *others = late
        more = f" (nor did {counted(len(others), 'other worker')})" if others else ""
        return f"{first.name} did not {first.next_step}{more}"

    async def broadcast(self, method: str, *args: Any) -> None:
        """Call a method of every living worker and wait for all of them."""
        await asyncio.gather(
            *(worker.call_actor(method, *args) for worker in self.workers if worker.alive)
        )

    async def close(self) -> None:
        """Let the workers exit, and wait until all their events have arrived."""
        self.closing = True
        living = [worker for worker in self.workers if worker.alive]
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.broadcast("close")
                for worker in living:
                    await worker.gone.wait()
        except TimeoutError:
            pass  # ``kill`` ends those that cannot exit

    def kill(self) -> None:
        """Kill every process."""
        self.closing = True
        for worker in self._workers.values():
            ray.kill(worker.actor)

    # -- what the journal reports about them --

    def on_connect(self, name: str) -> None:
        """A process has started."""
        self._connected.add(name)
        worker = self._workers.get(name)
        if worker is not None and worker.next_step == "start":
            worker.next_step = "create its tools"

    def on_disconnect(self, name: str) -> None:
        """The connection of a process ended, and all its events are here: it is dead."""
        worker = self._workers.get(name)
        if worker is None or not worker.alive:
            return
        if not self.closing:
            self._record_death(worker)
        worker.gone.set()

    def _record_death(self, worker: RayWorker) -> None:
        note = self._recorder.note
        events = [event for event in self._recorder.journal.events if event["source"] == "world"]
        if not worker.killed:
            note("world", "log", level="error", text=f"{worker.name} died unexpectedly")
        note("world", "worker_died", worker=worker.name)
        for call in _under_way(events, worker.name, "call", "called", ENDINGS):
            note("world", "lost", call=call, worker=worker.name)
        rollouts = _under_way(events, worker.name, "rollout", "rollout_started", ["rollout_ended"])
        for rollout in rollouts:
            note("world", "rollout_lost", rollout=rollout, worker=worker.name)
        seen = {event["call"] for event in events if event["event"] == "called"}
        for call, called in worker.assigned.items():
            if call not in seen:
                note_never_made(self._recorder, called)


def _under_way(
    events: list[Event], worker: str, key: str, begin: str, ends: Collection[str]
) -> list[str]:
    """Return which of a worker's calls or rollouts have begun and not ended."""
    over = {event[key] for event in events if event["event"] in ends}
    mine = [event for event in events if event.get("worker") == worker]
    begun = [event[key] for event in mine if event["event"] == begin]
    return [name for name in begun if name not in over]
