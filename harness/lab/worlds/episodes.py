"""Plays episodes: a fake service of sandboxes, a client, and what happens to both meanwhile.

World sim plays them in virtual time, the fake in the same loop. In world wall the fake has a thread
of its own and the clock is the real one: an SDK may wait where no faster clock reaches it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
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
from .recorder import Recorder, recorded_logs
from .run_notes import note_stuck
from .virtual_time import run_virtually
from .wall import LONGEST_RUN, LoopJournal

_GRACE = 10.0
"""Seconds that cancelled episodes get to clean up. Chosen: longer than a delete takes."""
_LONGEST_TEXT = 300
"""Characters that are kept of an answer, and of what was raised. Chosen."""
_MOST_ANSWERS = 100
"""Answers of an episode that are kept: as many as it has steps."""

Target = Callable[[EpisodeTask], Any]


def play_episodes(scenario: Scenario, world: World, target: Target) -> Journal:
    """Play the episodes of a scenario with a client and return the journal."""
    kind = LoopJournal if world == "wall" else Journal
    journal = kind.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world=world
    )
    try:
        if world == "sim":
            run_virtually(_play(scenario, target, journal, virtual=True))
        elif world == "wall":
            asyncio.run(_play(scenario, target, journal, virtual=False))
        else:
            raise WorldError(f"episodes run in sim and wall, not in {world}")
    except WorldError as error:
        note_stuck(journal, error)
    # Threads report late: an answer may be noted after what its receiver did.
    return Journal(journal.header, sorted(journal.events, key=lambda event: event["at"]))


async def _play(scenario: Scenario, target: Target, journal: Journal, *, virtual: bool) -> None:
    loop = asyncio.get_running_loop()
    if isinstance(journal, LoopJournal):
        journal.home = loop, threading.get_ident()
    recorder = Recorder(journal, loop.time if virtual else time.monotonic)
    with recorded_logs(recorder):
        service = make_service(scenario, recorder)
        service_at = _InLoop(service) if virtual else _InThread(service)
        await service_at.start()
        try:
            recorder.alias(service.url.removeprefix("http://"), "sandbox-1")
            with variables(service.environment):
                player = EpisodePlayer(scenario, service, recorder, target)
                await player.run()
            await service_at.settle()
            recorder.note("world", "ended")
            recorder.on = False
        finally:
            await service_at.stop()


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
    cancellable: bool
    by: str = ""
    """Who cancelled it: event, deadline or horizon."""


class EpisodePlayer:
    """Lets callers play one episode after the other, and events happen."""

    def __init__(
        self, scenario: Scenario, service: SandboxService, recorder: Recorder, target: Target
    ) -> None:
        assert scenario.episodes is not None
        self._scenario = scenario
        self._part: EpisodesPart = scenario.episodes
        self._service = service
        self._note = recorder.note
        self._recorder = recorder
        self._target = target
        self._is_async = is_async(target)
        self._playing: dict[str, _Playing] = {}
        self._given = 0
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
        work = [loop.create_task(self._caller()) for _ in range(callers)]
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

    async def _caller(self) -> None:
        while self._given < self._part.count and not self._over:
            self._given += 1
            number = self._given
            name = self._part.name(number)
            think = self._part.think.sample(drawer(self._scenario.seed, "think", name))
            if think > 0:
                await asyncio.sleep(think)
            await self._play(name, number)

    async def _play(self, name: str, number: int) -> None:
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
        playing = _Playing(name, self._start(task), self._is_async)
        self._playing[name] = playing
        try:
            await asyncio.wait([playing.work], timeout=self._part.deadline)
            if not playing.work.done():
                self._cancel([playing], "deadline")
                await asyncio.wait([playing.work], timeout=_GRACE)
        finally:
            del self._playing[name]
        self._note("world", "episode_ended", episode=name, **_how_ended(playing))

    def _start(self, task: EpisodeTask) -> asyncio.Future[Any]:
        if self._is_async:
            return asyncio.ensure_future(self._target(task))
        return _in_thread(self._target, task)

    def _cancel(self, chosen: list[_Playing], by: str) -> None:
        for playing in chosen:
            if playing.work.done() or playing.by:
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
                playing.work.cancel()

    # -- events --

    async def _event(self, event: EventPart) -> None:
        await asyncio.sleep(event.at)
        match event.kind:
            case "cancel":
                self._cancel_share(float(event.target), event.at)
            case "crash":
                self._service.crash(restart_after=event.seconds)
            case "wedge":
                self._service.wedge(ping=event.ping, seconds=event.seconds)
            case "restart":
                self._service.restart()

    def _cancel_share(self, share: float, at: float) -> None:
        """Cancel a share of the episodes under way, drawn by their names."""
        chosen = [
            playing
            for playing in self._playing.values()
            if uniform(self._scenario.seed, "cancel", at, playing.name) < share
        ]
        self._cancel(chosen, "event")


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
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, result, problem)

    threading.Thread(target=work, name=f"episode-{task.id}", daemon=True).start()
    return ended


def _how_ended(playing: _Playing) -> Event:
    """Return what is noted of the end of an episode."""
    facts: Event = {"by": playing.by} if playing.by else {}
    if not playing.work.done():
        return facts | {"end": "left_behind"}
    if playing.work.cancelled():
        return facts | {"end": "cancelled"}
    error = playing.work.exception()
    if isinstance(error, WorldError):
        raise error
    if error is not None:
        text = str(error)[:_LONGEST_TEXT]
        return facts | {"end": "raised", "raised": type(error).__name__, "text": text}
    return facts | {"end": "returned"} | read_result(playing.work.result())


def read_result(result: Any) -> Event:
    """Return score, outcome and answers of what a client returned for an episode."""
    if not isinstance(result, Mapping):
        return {"score": _number(result)}
    facts: Event = {"score": _number(result.get("score", result.get("reward")))}
    outcome = result.get("outcome")
    if outcome is not None:
        facts["outcome"] = str(outcome)[:_LONGEST_TEXT]
    answers = result.get("answers")
    if isinstance(answers, list | tuple):
        facts["answers"] = [_answer_text(answer) for answer in answers[:_MOST_ANSWERS]]
    return facts


def _answer_text(answer: Any) -> str | None:
    return None if answer is None else str(answer)[:_LONGEST_TEXT]


def _number(value: Any) -> float | None:
    """Return a score; None and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if isfinite(value) else None
