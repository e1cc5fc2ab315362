"""World sim: a cluster in one process and one event loop, in virtual time. A run is a function of its seed."""

from __future__ import annotations

import asyncio
import itertools
import logging
from contextlib import AsyncExitStack
from typing import Any

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.errors import WorldError
from sfusion.harness.journal import Journal
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.scenarios.rollouts import RolloutPart
from sfusion.harness.worlds.calling import call_tool
from sfusion.harness.worlds.happenings import Happenings
from sfusion.harness.worlds.limiter_place import CoreFactory, LimiterPlace, Link
from sfusion.harness.worlds.measuring import bounds_of, default_timeout
from sfusion.harness.worlds.recorder import LogNotes, Recorder
from sfusion.harness.worlds.rollouts import Rollouts, names
from sfusion.harness.worlds.toolbox import make_tools
from sfusion.harness.worlds.virtual_time import run_virtually
from sfusion.harness.worlds.worker import Worker
from sfusion.harness.worlds.workload import Workload
from sfusion_tools.limiter import LimiterCore, LimiterSettings
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.sandbox.program import Program

_LOGGERS = ("sfusion_tools", "sfusion.fakes")


def run(scenario: Scenario, *, core: CoreFactory = LimiterCore) -> Journal:
    """Run one cell of a scenario and give its journal. ``core`` replaces the limiter's rules, to try others."""
    journal = Journal.begin(scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="sim")
    try:
        run_virtually(_Simulation(scenario, journal, core, bounds_of(scenario)).run())
    except WorldError as error:
        at = journal.events[-1]["at"] if journal.events else 0.0
        journal.note(at, "world", "stuck", text=str(error))
    return journal


class _Simulation:
    def __init__(self, scenario: Scenario, journal: Journal, core: CoreFactory, limits: RolloutLimits) -> None:
        self._scenario = scenario
        self._limits = limits
        self._journal = journal
        self._core = core
        self._workers: list[Worker] = []
        self._sandboxes: list[FakeSandbox] = []
        self._numbers = itertools.count(1)
        self._recorder: Recorder
        self._place: LimiterPlace | None = None

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self._recorder = recorder = Recorder(self._journal, loop.time)
        notes = LogNotes(recorder)
        loggers = [logging.getLogger(name) for name in _LOGGERS]
        heard = [(logger, logger.propagate, logger.level) for logger in loggers]
        for logger in loggers:
            logger.addHandler(notes)
            logger.propagate = False
            # What is noted must not depend on how the process at large is set to log.
            logger.setLevel(logging.WARNING)
        try:
            async with AsyncExitStack() as stack:
                await self._build(stack)
                await self._play()
                await self._wind_up()
        finally:
            for logger, propagate, level in heard:
                logger.removeHandler(notes)
                logger.propagate = propagate
                logger.setLevel(level)

    # -- building --

    async def _build(self, stack: AsyncExitStack) -> None:
        scenario, recorder = self._scenario, self._recorder
        part = scenario.sandbox
        urls = []
        for number in range(1, part.instances + 1):
            name = f"sandbox-{number}"
            sandbox = FakeSandbox(
                executor=part.executor,
                profile=part.profile,
                faults=part.faults,
                model=part.model,
                seed=scenario.seed,
                journal=self._listener(name if part.instances > 1 else None),
            )
            await stack.enter_async_context(sandbox)
            self._sandboxes.append(sandbox)
            urls.append(sandbox.url)
            recorder.call_it(sandbox.url.removeprefix("http://"), name)
        settings = scenario.settings
        limits = settings.limits if settings is not None and settings.enable_global_rate_limit else None
        for name, text in scenario.secrets.items():
            recorder.keep_secret(text, name)
        recorder.note(
            "world",
            "began",
            workers=scenario.cluster.workers,
            sandboxes=part.instances,
            limit=scenario.stated_limit,
            calls=scenario.load.calls if scenario.load is not None else None,
            secrets=recorder.secrets,
            loss=scenario.cluster.link.loss,
        )
        if limits is not None:
            self._place = LimiterPlace(limits, recorder, self._core)
            self._place.start()
        for name in scenario.cluster.workers:
            self._workers.append(self._worker(name, urls))
        stack.push_async_callback(self._close)

    def _listener(self, name: str | None) -> Any:
        if name is None:
            return self._recorder.server
        return lambda event: self._recorder.server({**event, "sandbox": name})

    def _worker(self, name: str, urls: list[str]) -> Worker:
        scenario, place = self._scenario, self._place
        link = Link(
            name, place or LimiterPlace(LimiterSettings(), self._recorder), scenario.cluster.link, scenario.seed
        )

        def tools(worker: Worker) -> list[Any]:
            limiter = worker.limiter if place is not None else (lambda: None)
            return make_tools(scenario, urls, limiter=limiter, on_event=worker.hear)

        return Worker(name, link, self._recorder, tools)

    # -- playing --

    async def _play(self) -> None:
        scenario = self._scenario
        loop = asyncio.get_running_loop()
        happenings = Happenings(scenario, self._workers, self._sandboxes, self._place, self._recorder)
        doing = [loop.create_task(happenings.happen(event)) for event in scenario.events]
        work = loop.create_task(self._roll_out(scenario.rollouts) if scenario.rollouts is not None else self._load())
        await asyncio.wait([work], timeout=scenario.horizon)
        if not work.done():
            # From here on things end only because we end them: that is not to be told.
            self._recorder.note("world", "broken_off", after=scenario.horizon)
            self._recorder.on = False
        for task in (work, *doing):
            task.cancel()
        for result in await asyncio.gather(work, *doing, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _load(self) -> None:
        load = self._scenario.load
        assert load is not None
        workload = Workload(load, self._scenario.seed)
        callers = [
            worker.run(self._caller(worker, workload, load.calls))
            for worker, _ in zip(itertools.cycle(self._workers), range(min(load.concurrency, load.calls)), strict=False)
        ]
        await asyncio.gather(*callers, return_exceptions=True)

    async def _caller(self, worker: Worker, workload: Workload, calls: int) -> None:
        """One of those who call, one call after the other."""
        while (number := next(self._numbers)) <= calls:
            think = workload.think(number)
            if think > 0:
                await asyncio.sleep(think)
            await asyncio.wait([worker.run(self._call(worker, workload, number), workload.name(number))])

    async def _call(self, worker: Worker, workload: Workload, number: int) -> None:
        written = workload.written(number)
        note, settings = self._recorder.note, self._scenario.settings
        facts: dict[str, Any] = {"call": written.call, "worker": worker.name}
        default = default_timeout(self._scenario)
        allowed = None
        if settings is not None and written.part.arguments is None:
            timeout = min(written.part.timeout or default, settings.longest_timeout)
            language = written.part.language or settings.default_language
            program = Program("", language, timeout, settings.compile_timeout)
            allowed = settings.bounds.of(program)[1]
        note("world", "called", **facts, intent=written.intent(default), allowed=allowed)
        try:
            async with asyncio.timeout(workload.cancelled_after(number)):
                returned = await call_tool(worker.tool, written)
        except (TimeoutError, asyncio.CancelledError) as error:
            if worker.alive:
                note("world", "cancelled", **facts)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            note("world", "returned", **facts, **returned)

    async def _roll_out(self, part: RolloutPart) -> None:
        """Trajectories in turn on the workers; with ``enough`` the rest is cancelled when so many are completed."""
        scenario = self._scenario
        sides = [
            Rollouts(
                part,
                worker.tool,
                worker.name,
                seed=scenario.seed,
                limits=self._limits,
                note=self._recorder.note,
                timeout=default_timeout(scenario),
                is_alive=worker.is_alive,
            )
            for worker in self._workers
        ]
        gate = asyncio.Semaphore(part.at_once or part.count)
        completed = 0
        running: list[asyncio.Task[Any]] = []

        async def roll(side: Rollouts, name: str) -> None:
            nonlocal completed
            async with gate:
                request = side.request(name)
                await side.run(request)
            completed += request.state is State.COMPLETED
            if part.enough is not None and completed >= part.enough:
                for task in running:
                    task.cancel()

        for name, (worker, side) in zip(
            names(part.count), itertools.cycle(zip(self._workers, sides, strict=True)), strict=False
        ):
            running.append(worker.run(roll(side, name)))
        for ending in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(ending, Exception):
                raise ending

    # -- the end --

    async def _wind_up(self) -> None:
        """Let leases run out and the sandboxes finish, then say how things stand."""
        facts: dict[str, Any] = {}
        place = self._place
        if place is not None and place.host is not None:
            await asyncio.wait([asyncio.ensure_future(worker.flush()) for worker in self._workers], timeout=10.0)
            rounds = 0
            snapshot = place.host.snapshot()
            # Two leases are enough for anybody who died to be noticed.
            while (snapshot.in_use or snapshot.waiting) and rounds < 20:
                await asyncio.sleep(snapshot.lease / 10 + 0.01)
                rounds += 1
                snapshot = place.host.snapshot()
            facts["limiter"] = {
                "in_use": snapshot.in_use,
                "waiting": snapshot.waiting,
                "granted": snapshot.granted,
                "handed_on": snapshot.handed_on,
                "expired": snapshot.expired,
                "fenced": snapshot.fenced,
                "width": snapshot.width,
            }
        if self._scenario.own_config is None and not any(sandbox.ledger.requests for sandbox in self._sandboxes):
            self._recorder.note("world", "unobserved")
        self._recorder.note("world", "ended", **facts)
        self._recorder.on = False

    async def _close(self) -> None:
        for worker in self._workers:
            await worker.leave()
