"""World sim: a cluster in one process and one event loop, in virtual time. A run is a function of
its seed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, AsyncExitStack
from math import inf
from typing import TYPE_CHECKING, Any

from sfusion_tools.limiter import LimiterCore
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.sandbox.transport_choice import fast_if_possible

from ...core.journal import Journal
from ...errors import WorldError
from ..scenarios.model import Scenario
from .backend import Backend
from .play import Play
from .recorder import Recorder, recorded_logs
from .rollout_bounds import bounds_of
from .run_notes import note_began, note_never_made, note_stuck
from .sandboxes import FakeSandboxes
from .schedules import ScheduledQueue, make_schedule, running_as
from .sim_limiter import CoreFactory, Link, SimLimiter
from .virtual_time import VirtualTimeLoop, run_virtually
from .worker import Worker

if TYPE_CHECKING:
    from .training import OnSample
    from .worker_rollouts import Model


class SimWorker(Worker):
    """A worker that shares the event loop with all the others."""

    _transport: Link | None

    async def pause(self) -> None:
        """Hold back all messages to and from the limiter."""
        if self._transport is not None:
            self._transport.open.clear()

    async def resume(self) -> None:
        """Let messages pass again."""
        if self._transport is not None:
            self._transport.open.set()

    async def cut_off(self, off: bool) -> None:
        """Cut the connection to the limiter, or restore it."""
        if self._transport is not None:
            self._transport.is_cut = off

    async def die(self) -> None:
        """End like a killed process: permits are not released, connections drop."""
        if not self.alive:
            return
        self.alive = False
        if self._transport is not None:
            self._transport.die()
        self._recorder.note("world", "worker_died", worker=self.name)
        for call in self._calls:
            called = self._not_made.get(call)
            if called is not None:
                note_never_made(self._recorder, called)
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


_SETTLED = 1e-8
"""Virtual seconds after which all that was ready has run; chosen: ten steps of the clock. A
schedule may leave a sandbox behind the last caller, and it has not recorded the answer yet."""


def run(
    scenario: Scenario,
    *,
    core: CoreFactory = LimiterCore,
    journal: Journal | None = None,
    on_sample: OnSample | None = None,
) -> Journal:
    """Run one cell of a scenario and return its journal. ``core`` replaces the limiter's rules.

    ``on_sample`` is called with each trajectory of a training that has ended, and its score and
    step.
    """
    journal = journal or Journal.begin(
        scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="sim"
    )
    queue = None if scenario.schedule is None else ScheduledQueue(make_schedule(scenario.schedule))

    async def play(bounds: RolloutLimits) -> None:
        fast_if_possible.set(True)
        recorder = Recorder(journal, asyncio.get_running_loop().time)
        await SimBackend(scenario, recorder, bounds, core).play(queue, on_sample)

    try:
        run_virtually(play(bounds_of(scenario)), queue)
    except WorldError as error:
        note_stuck(journal, error)
    if queue is not None:
        journal.note(
            journal.last_time, "world", "scheduled", steps=queue.steps, deviations=queue.deviations
        )
    return journal


class SimBackend(Backend):
    """A cluster in one process."""

    time_scale = 1.0
    longest_run = inf
    sandbox_class = FakeSandboxes

    def __init__(
        self,
        scenario: Scenario,
        recorder: Recorder,
        bounds: RolloutLimits,
        core: CoreFactory = LimiterCore,
    ) -> None:
        self._scenario = scenario
        self._bounds = bounds
        self._core = core
        self.recorder = recorder
        self.horizon = min(scenario.horizon, self.longest_run)
        self.sandboxes = self._sandboxes_of_world()
        self.workers: list[SimWorker] = []

    def _sandboxes_of_world(self) -> FakeSandboxes:
        return self.sandbox_class(self._scenario, self.recorder)

    async def play(
        self, queue: ScheduledQueue | None = None, on_sample: OnSample | None = None
    ) -> None:
        with self._logs():
            async with AsyncExitStack() as stack:
                await self._start(stack)
                play = Play(self._scenario, self, on_sample)
                await play.run()
                if queue is not None:
                    await asyncio.sleep(_SETTLED)
                await play.wind_up()
                if queue is not None:
                    queue.is_over = True

    def _logs(self) -> AbstractContextManager[None]:
        return recorded_logs(self.recorder)

    async def _start(self, stack: AsyncExitStack) -> None:
        scenario = self._scenario
        recorder = self.recorder
        settings = scenario.settings
        stack.push_async_callback(self.sandboxes.stop)
        urls = await self.sandboxes.start()
        await self.sandboxes.begin()
        note_began(
            recorder,
            scenario,
            sandboxes=self.sandboxes.count,
            loss=scenario.cluster.link.loss,
        )
        if settings is not None and settings.enable_global_rate_limit:
            self.limiter = limiter = SimLimiter(settings.limits, recorder, self._core)
            limiter.start()
        for name in scenario.cluster.workers:
            link = None
            if self.limiter is not None:
                link = Link(name, limiter, scenario.cluster.link, scenario.seed)
            worker = SimWorker(name, scenario, recorder, link, self._bounds)
            with running_as(name):
                worker.make_tools(urls)
            stack.push_async_callback(worker.close)
            self.workers.append(worker)

    def use_model(self, model: Model) -> None:
        for worker in self.workers:
            worker.model = model

    async def kill(self, target: str, names: list[str]) -> None:
        await asyncio.gather(*(worker.die() for worker in self.workers if worker.name in names))

    async def flush(self) -> None:
        await asyncio.wait(
            [asyncio.ensure_future(worker.flush()) for worker in self.workers], timeout=10.0
        )

    def on_broken_off(self) -> None:
        # From here on, everything ends only because the run is torn down.
        self.recorder.on = False

    @property
    def observed(self) -> bool:
        """Has a tool connected to a sandbox of ours, or tried to?"""
        loop = asyncio.get_running_loop()
        return not isinstance(loop, VirtualTimeLoop) or loop.network.connects > 0

    def closing_facts(self) -> dict[str, Any]:
        for worker in self.workers:
            if worker.alive:
                worker.look_inside()
        if self._scenario.own_config is None and not self.observed:
            self.recorder.note("world", "unobserved")
        return {}
