"""Plays episodes: a fake service of sandboxes, a client, and what happens to both meanwhile.

World sim plays them in virtual time, the fake in the same loop. In world wall the fake has a thread
of its own and the clock is the real one: an SDK may wait where no faster clock reaches it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ....fakes.faults.chance import drawer, uniform
from ....fakes.hosting.service import SandboxService
from ...core.journal import Event, Journal
from ...errors import WorldError
from ..episodes.task import EpisodeTask, plan_steps
from ..scenarios.episodes import EpisodesPart
from ..scenarios.events import EventPart
from ..scenarios.model import Scenario, World
from ..shapes.episode import is_async
from .episode_endings import ending_of
from .episode_workers import (
    MOST_PROCESSES,
    EpisodeWorker,
    LocalWorker,
    ProcessWorker,
    SimulatedWorker,
    Target,
    Told,
)
from .mortal import MortalLoop
from .recorder import Recorder, recorded_logs
from .run_notes import note_stuck
from .virtual_time import run_virtually
from .wall import LONGEST_RUN, LoopJournal

_GRACE = 10.0
"""Seconds that cancelled episodes get to clean up. Chosen: longer than a delete takes."""


def play_episodes(scenario: Scenario, world: World, target: Target, *, source: str = "") -> Journal:
    """Play the episodes of a scenario with a client and return the journal.

    ``source`` names the client as ``module:name`` or ``file.py:name``, so that processes which are
    killed can import it.
    """
    kind = LoopJournal if world == "wall" else Journal
    journal = kind.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world=world
    )
    try:
        if world == "sim":
            run_virtually(
                _play(scenario, journal, partial(_simulated, target), virtual=True), loop=MortalLoop
            )
        elif world == "wall":
            make = partial(_real, target, source, scenario)
            asyncio.run(_play(scenario, journal, make, virtual=False))
        else:
            raise WorldError(f"episodes run in sim and wall, not in {world}")
    except WorldError as error:
        note_stuck(journal, error)
    # Threads report late: an answer may be noted after what its receiver did.
    return Journal(journal.header, sorted(journal.events, key=lambda event: event["at"]))


MakeWorker = Callable[[str], EpisodeWorker]


def _simulated(target: Target, name: str) -> EpisodeWorker:
    """Return a worker of world sim."""
    return SimulatedWorker(name, target) if is_async(target) else LocalWorker(name, target)


def has_kill(scenario: Scenario) -> bool:
    """Is a worker of this scenario killed?"""
    return any(event.kind == "kill" for event in scenario.events)


def _real(target: Target, source: str, scenario: Scenario, name: str) -> EpisodeWorker:
    """Return a worker of world wall: a process if workers are killed."""
    if not has_kill(scenario):
        return LocalWorker(name, target)
    if not source:
        raise WorldError(
            "the client of a scenario with `kill` runs in processes, which import it: name it as "
            "--tools my_episode.py:run"
        )
    if len(scenario.cluster.workers) > MOST_PROCESSES:
        raise WorldError(f"at most {MOST_PROCESSES} workers can be killed in world wall")
    return ProcessWorker(name, source, can_cancel=is_async(target))


async def _play(
    scenario: Scenario, journal: Journal, make_worker: MakeWorker, *, virtual: bool
) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(journal, LoopJournal):
        journal.home = loop, threading.get_ident()
    recorder = Recorder(journal, loop.time if virtual else time.monotonic)
    with recorded_logs(recorder):
        service = make_service(scenario, recorder)
        service_at = _InLoop(service) if virtual else _InThread(service)
        workers: list[EpisodeWorker] = []
        await service_at.start()
        try:
            recorder.alias(service.url.removeprefix("http://"), "sandbox-1")
            with variables(service.environment):
                workers = [make_worker(name) for name in scenario.cluster.workers]
                async with AsyncExitStack() as stack:
                    for worker in workers:
                        stack.push_async_callback(worker.stop)
                    await asyncio.gather(*(worker.start() for worker in workers))
                    player = EpisodePlayer(scenario, service, recorder, workers)
                    await player.run()
            await service_at.settle()
            recorder.note("world", "ended")
            recorder.on = False
        finally:
            await service_at.stop()
            for worker in workers:
                worker.wake()


def make_service(scenario: Scenario, recorder: Recorder) -> SandboxService:
    """Return the fake of the service that a scenario names, without faults."""
    part = scenario.sandbox
    kind = _face(str(part.face))
    return kind(
        model=part.model,
        executor=part.executor,
        seed=scenario.seed,
        journal=recorder.server_events(None),
    )


def _face(name: str) -> type[SandboxService]:
    """Return the fake of a service; each is imported where it is needed."""
    if name == "daytona":
        from ....fakes.daytona import FakeDaytona

        return FakeDaytona
    if name == "openenv":
        from ....fakes.openenv import FakeOpenEnv

        return FakeOpenEnv
    from ....fakes.e2b import FakeE2B

    return FakeE2B


class _InLoop:
    """A service in the loop that plays."""

    def __init__(self, service: SandboxService) -> None:
        self._service = service

    async def start(self) -> None:
        await self._service.start()

    async def settle(self) -> None:
        """In this loop all events are recorded."""

    async def stop(self) -> None:
        await self._service.stop(grace=0.0)


class _InThread(_InLoop):
    """A service in a thread of its own, for clients that block."""

    async def start(self) -> None:
        self._service.__enter__()

    async def settle(self) -> None:
        await asyncio.to_thread(self._service.metrics)  # after everything that was ready there
        await asyncio.sleep(0)

    async def stop(self) -> None:
        await asyncio.to_thread(self._service.__exit__)


@contextmanager
def variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, and set them back at the end."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass
class _Playing:
    """An episode under way."""

    name: str
    work: asyncio.Future[Any]
    worker: EpisodeWorker
    cancellable: bool
    by: str = ""
    """Who cancelled it: event, deadline or horizon."""
    killed: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Done if its worker is killed."""

    @property
    def is_over(self) -> bool:
        return self.work.done() or self.killed.done()


class EpisodePlayer:
    """Lets callers play one episode after the other, and events happen."""

    def __init__(
        self,
        scenario: Scenario,
        service: SandboxService,
        recorder: Recorder,
        workers: Sequence[EpisodeWorker],
    ) -> None:
        assert scenario.episodes is not None
        self._scenario = scenario
        self._part: EpisodesPart = scenario.episodes
        self._service = service
        self._note = recorder.note
        self._recorder = recorder
        self._workers = workers
        self._playing: dict[str, _Playing] = {}
        self._waiting = deque(range(1, self._part.count + 1))
        self._over = False

    async def run(self) -> None:
        """Play all episodes, or until the horizon."""
        scenario = self._scenario
        self._service.set_faults(scenario.sandbox.faults)
        self._note(
            "world",
            "began",
            workers=scenario.cluster.workers,
            sandboxes=1,
            limit=None,
            calls=None,
            secrets=0,
            asks={},
            face=scenario.sandbox.face,
            episodes=self._part.count,
        )
        loop = asyncio.get_running_loop()
        events = [loop.create_task(self._event(event)) for event in scenario.events]
        callers = min(self._part.concurrency, self._part.count)
        work = [
            loop.create_task(self._caller(self._workers[number % len(self._workers)]))
            for number in range(callers)
        ]
        horizon = min(scenario.horizon, LONGEST_RUN)
        await asyncio.wait(work, timeout=horizon)
        self._over = True
        if not all(caller.done() for caller in work):
            self._note("world", "broken_off", after=horizon)
            self._cancel(list(self._playing.values()), "horizon")
            await asyncio.wait(work, timeout=_GRACE)
        for task in (*work, *events):
            task.cancel()
        await asyncio.wait([*work, *events])
        for task in work:
            if not task.cancelled():
                task.result()
        await asyncio.sleep(self._part.settle)

    # -- episodes --

    async def _caller(self, worker: EpisodeWorker) -> None:
        while await worker.is_there() and self._waiting and not self._over:
            number = self._waiting.popleft()
            name = self._part.name(number)
            think = self._part.think.sample(drawer(self._scenario.seed, "think", name))
            if think > 0:
                await asyncio.sleep(think)
            if worker.is_alive:
                await self._play(worker, name, number)
            else:
                self._waiting.appendleft(number)

    async def _play(self, worker: EpisodeWorker, name: str, number: int) -> None:
        """Play an episode and note how it ended."""
        task = EpisodeTask(
            id=name,
            face=str(self._scenario.sandbox.face),
            url=self._service.url,
            steps=plan_steps(self._part, number, self._scenario.seed),
            environment=self._service.environment,
        )
        steps = [
            {"call": step.call, "kind": step.kind, "answer": step.answer} for step in task.steps
        ]
        self._note("world", "episode_started", episode=name, steps=steps)
        playing = _Playing(name, worker.play(task), worker, worker.can_cancel)
        self._playing[name] = playing
        try:
            await _until_over(playing, self._part.deadline)
            if not playing.is_over:
                self._cancel([playing], "deadline")
                await _until_over(playing, _GRACE)
        finally:
            del self._playing[name]
        self._note("world", "episode_ended", episode=name, **_how_ended(playing))

    def _cancel(self, chosen: list[_Playing], by: str) -> None:
        for playing in chosen:
            if playing.is_over or playing.by:
                continue
            playing.by = by
            self._note(
                "world",
                "cancelled",
                episode=playing.name,
                by=by,
                reached=playing.cancellable,
            )
            if playing.cancellable:
                playing.worker.cancel(playing.name, playing.work)

    # -- events --

    async def _event(self, event: EventPart) -> None:
        await asyncio.sleep(event.at)
        match event.kind:
            case "cancel":
                self._cancel_share(float(event.target), event.at)
            case "kill":
                await self._kill(event)
            case "crash":
                self._service.crash(restart_after=event.seconds)
            case "wedge":
                self._service.wedge(ping=event.ping, seconds=event.seconds)
            case "restart":
                self._service.restart()

    async def _kill(self, event: EventPart) -> None:
        """Kill workers, and start them again if the event says when."""
        self._note("world", "killed", target=event.target)
        names = event.workers([worker.name for worker in self._workers])
        killed = [worker for worker in self._workers if worker.name in names and worker.is_alive]
        for worker in killed:
            await worker.kill(may_return=event.seconds is not None)
            self._note("world", "worker_died", worker=worker.name)
            for playing in self._playing.values():
                if playing.worker is worker and not playing.is_over:
                    playing.killed.set_result(None)
        if event.seconds is None:
            return
        await asyncio.sleep(event.seconds)
        for worker in killed:
            await worker.start_again()
            self._note("world", "worker_started", worker=worker.name)

    def _cancel_share(self, share: float, at: float) -> None:
        """Cancel a share of the episodes under way, drawn by their names."""
        chosen = [
            playing
            for playing in self._playing.values()
            if uniform(self._scenario.seed, "cancel", at, playing.name) < share
        ]
        self._cancel(chosen, "event")


async def _until_over(playing: _Playing, limit: float | None) -> None:
    """Wait until an episode has ended or was killed."""
    await asyncio.wait(
        [playing.work, playing.killed], timeout=limit, return_when=asyncio.FIRST_COMPLETED
    )


def _how_ended(playing: _Playing) -> Event:
    """Return what is noted of the end of an episode."""
    facts: Event = {"by": playing.by} if playing.by else {}
    if playing.killed.done():
        return facts | {"end": "killed"}
    is_told = playing.work.done() and not playing.work.cancelled() and not playing.work.exception()
    result = playing.work.result() if is_told else None
    return facts | (result.facts if isinstance(result, Told) else ending_of(playing.work))
