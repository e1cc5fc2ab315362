"""One run of a scenario on a Ray cluster, seen from the driver."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal
from uuid import uuid4

from ray.exceptions import RayError

from sfusion.harness.errors import WorldError
from sfusion.harness.journal import Event, Journal
from sfusion.harness.scenarios.events import EventPart
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.targets import RealSandbox
from sfusion.harness.worlds.measuring import default_timeout
from sfusion.harness.worlds.ray_cluster import RayCluster, doomed_nodes
from sfusion.harness.worlds.ray_crew import Crew, Member, at_once
from sfusion.harness.worlds.ray_driver import SecondDriver
from sfusion.harness.worlds.ray_limiter import PROCESS as LIMITER
from sfusion.harness.worlds.ray_limiter import RunLimiter
from sfusion.harness.worlds.ray_sandbox import RemoteSandboxes, Sandboxes
from sfusion.harness.worlds.ray_worker import Orders
from sfusion.harness.worlds.real_sandboxes import RealSandboxes
from sfusion.harness.worlds.recorder import LogNotes, Recorder
from sfusion.harness.worlds.rollouts import names as rollout_names
from sfusion.harness.worlds.scaling import ScaledWorkload
from sfusion.harness.worlds.wire import ClockRecorder, Gathering
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout import RolloutLimits

LONGEST_RUN = 120.0
"""Seconds of load after which a run is broken off, also where the scenario's horizon is farther."""
_START_SECONDS = 90.0

SandboxOn = Literal["driver", "node"]


class Run:
    """One run: its processes are built up, the load and the events are played, and all is taken down again."""

    def __init__(
        self,
        scenario: Scenario,
        journal: Journal,
        cluster: RayCluster,
        nodes: list[str],
        bounds: RolloutLimits,
        sandbox_on: SandboxOn,
        listen: str,
        real: Sequence[RealSandbox] = (),
    ) -> None:
        self._scenario = scenario
        self._journal = journal
        self._cluster = cluster
        self._nodes = nodes
        self._bounds = bounds
        self._sandbox_on = sandbox_on
        self._real = real
        self._listen = listen
        self._numbers = itertools.count(1)
        self._lives = 0
        self._limiter_lives = False
        self._limiter: RunLimiter | None = None
        self._driver: SecondDriver | None = None
        self._sandboxes: Sandboxes | RemoteSandboxes | RealSandboxes
        self._gathering: Gathering
        self._recorder: Recorder
        self._crew: Crew

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            self._gathering = Gathering(self._hear, came=self._came, gone=self._went, host=self._listen)
            await stack.enter_async_context(self._gathering)
            self._recorder = ClockRecorder(self._journal, self._gathering.zero)
            self._crew = Crew(self._recorder, one_machine=not self._cluster.elsewhere())
            notes = LogNotes(self._recorder)
            for name in ("sfusion_tools", "sfusion.fakes"):
                stack.enter_context(_heard_by(notes, logging.getLogger(name)))
            # Left in the opposite order: workers, limiter, sandboxes, then the journal's ears.
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self._build(stack)
            except TimeoutError:
                raise WorldError(f"the processes of the run did not start within {_START_SECONDS:g} s") from None
            except RayError as error:
                why = str(error).strip().splitlines()[-1]
                raise WorldError(f"a process of the run could not start: {why}") from error
            began = self._recorder.now()
            await self._play()
            ended = await self._wind_up()
            await self._crew.leave()
        self._in_order(began, ended)

    # -- what is told --

    def _hear(self, event: Event) -> None:
        self._crew.hear(event)
        self._journal.events.append(event)

    def _came(self, process: str, at: float) -> None:
        if process == LIMITER:
            self._limiter_went()
            self._lives += 1
            self._limiter_lives = True
            self._journal.note(at, "world", "limiter_started", life=self._lives, first=self._lives == 1)

    def _went(self, process: str) -> None:
        if process == LIMITER:
            self._limiter_went()
        self._crew.went(process)

    def _limiter_went(self) -> None:
        if self._limiter_lives and not self._crew.leaving:
            self._recorder.note("world", "limiter_died", life=self._lives)
        self._limiter_lives = False

    # -- building --

    async def _build(self, stack: AsyncExitStack) -> None:
        scenario, recorder = self._scenario, self._recorder
        hidden = {text: name for name, text in scenario.secrets.items()}
        for secret, name in hidden.items():
            recorder.keep_secret(secret, name)
        limits = limits_of(scenario)
        recorder.note(
            "world",
            "began",
            workers=scenario.cluster.workers,
            sandboxes=max(scenario.sandbox.instances, len(self._real)),
            limit=limits.rate_limit if limits is not None else None,
            calls=scenario.load.calls if scenario.load is not None else None,
            secrets=recorder.secrets,
            nodes=len(set(self._nodes)),
            time_scale=scenario.time_scale,
        )
        if self._real:
            self._sandboxes = RealSandboxes(scenario, recorder, self._real, self._listen)
        elif self._sandbox_on == "driver":
            self._sandboxes = Sandboxes(scenario, recorder, self._listen)
        else:
            wire = self._gathering.wire({}, hidden)
            # On the last node that is to live: killing a node must not take the sandbox along.
            safe = [node for number, node in enumerate(self._nodes, 1) if number not in doomed_nodes(scenario)]
            host = None if self._cluster.elsewhere() else "127.0.0.1"
            self._sandboxes = RemoteSandboxes(scenario, wire, (safe or self._nodes)[-1], host)
        stack.push_async_callback(self._sandboxes.stop)
        urls = await self._sandboxes.start()
        names = {bare_address(url): f"sandbox-{number}" for number, url in enumerate(urls, 1)}
        for address, name in names.items():
            recorder.call_it(address, name)
        wire = self._gathering.wire(names, hidden)
        known = None
        if limits is not None:
            # Where nodes die, the limiter lives on node-1: killing that one kills both.
            home = self._nodes[0] if doomed_nodes(scenario) else None
            self._limiter = RunLimiter(f"run-{uuid4().hex[:12]}", limits, wire, home)
            stack.callback(self._limiter.close)
            known = (self._limiter.name, limits)
        if scenario.load is not None:
            default = default_timeout(scenario)
            self._workload = ScaledWorkload(scenario.load, scenario.seed, scenario.time_scale, default)
        per_node = scenario.cluster.workers_per_node
        places = {name: self._nodes[place // per_node] for place, name in enumerate(scenario.cluster.workers)}
        stack.callback(self._crew.dismiss)
        if any(event.kind == "kill" and event.target == "driver" for event in scenario.events):
            self._driver = SecondDriver(self._cluster.address, f"run-{uuid4().hex[:12]}")
            stack.callback(self._driver.kill)
        if self._limiter is not None:
            await self._limiter.start()
        await self._crew.hire(places, Orders(scenario, urls, wire, known, self._bounds), self._driver)

    # -- playing --

    async def _play(self) -> None:
        scenario = self._scenario
        doing = [asyncio.ensure_future(self._happen(event)) for event in scenario.events]
        horizon = min(scenario.horizon, LONGEST_RUN)
        try:
            async with asyncio.timeout(horizon):
                await (self._load() if scenario.load is not None else self._roll_out())
        except TimeoutError:
            self._recorder.note("world", "broken_off", after=horizon)
        for task in doing:
            task.cancel()
        for result in await asyncio.gather(*doing, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _load(self) -> None:
        load = self._scenario.load
        assert load is not None
        members = itertools.cycle(self._crew.members)
        await at_once([self._caller(next(members), load.calls) for _ in range(min(load.concurrency, load.calls))])

    async def _caller(self, member: Member, calls: int) -> None:
        """One of those who call, one call after the other, as long as its worker lives."""
        while not member.gone.is_set() and (number := next(self._numbers)) <= calls:
            think = self._workload.think(number)
            if think > 0:
                await asyncio.sleep(think)
            written = self._workload.written(number)
            intent = written.intent(default_timeout(self._scenario))
            called = {"call": written.call, "worker": member.name, "intent": intent, "allowed": None}
            if member.gone.is_set():
                self._crew.never_made(called)  # it died while its caller was thinking
                return
            member.under_way[written.call] = called
            await member.ask(member.actor.call.remote(number))
            del member.under_way[written.call]

    async def _roll_out(self) -> None:
        """Trajectories in turn on the workers; with ``enough`` the rest is cancelled when so many are completed."""
        part = self._scenario.rollouts
        assert part is not None
        gate = asyncio.Semaphore(part.at_once or part.count)
        completed, stop = 0, False

        async def roll(member: Member, name: str) -> None:
            nonlocal completed, stop
            async with gate:
                if stop or member.gone.is_set():
                    return
                state = await member.ask(member.actor.roll.remote(name))
            completed += state == State.COMPLETED.value
            if part.enough is not None and completed >= part.enough and not stop:
                stop = True
                await self._crew.tell("stop_rollouts")

        pairs = zip(rollout_names(part.count), itertools.cycle(self._crew.members), strict=False)
        await at_once([roll(member, name) for name, member in pairs])

    # -- events --

    async def _happen(self, event: EventPart) -> None:
        scale = self._scenario.time_scale
        await asyncio.sleep(event.at * scale)
        seconds = None if event.seconds is None else event.seconds * scale
        chosen = self._crew.named(event.workers(self._scenario.cluster.workers))
        if event.kill == "driver":
            chosen = self._crew.living  # whatever a driver created goes with it
        match event.kind:
            case "kill":
                await self._kill(str(event.target), chosen)
            case "pause":
                await self._pause(chosen, seconds or 0.0)
            case "cut_off":
                await self._cut_off(chosen, seconds or 0.0)
            case "crash" | "wedge":
                await self._sandboxes.do(event.kind, str(event.target), seconds, event.ping)
            case "restart" if event.target == "sandbox":
                await self._sandboxes.do("restart", "sandbox", None, event.ping)
            case "resize" if self._limiter is not None:
                await self._limiter.resize(event.target)
            case "cancel":
                await self._crew.tell("cancel", event.target)

    async def _kill(self, target: str, chosen: list[Member]) -> None:
        self._recorder.note("world", "killed", target=target)
        for member in chosen:
            member.doomed = True
        if target == "limiter":
            if self._limiter is not None:
                self._limiter.kill()  # Ray starts it again at once: for how long it stays away is not ours to say
        elif target == "driver" and self._driver is not None:
            self._driver.kill()
        elif target.startswith("node-"):
            number = int(target.removeprefix("node-"))
            await asyncio.to_thread(self._cluster.kill_node, self._nodes[number - 1])
        else:
            for member in chosen:
                await self._crew.signal(member, signal.SIGKILL)
        for member in chosen:
            await member.gone.wait()

    async def _pause(self, chosen: list[Member], seconds: float) -> None:
        for member in chosen:
            self._recorder.note("world", "worker_paused", worker=member.name, seconds=seconds)
            await self._crew.signal(member, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for member in chosen:
                await self._crew.signal(member, signal.SIGCONT)
                self._recorder.note("world", "worker_resumed", worker=member.name)

    async def _cut_off(self, chosen: list[Member], seconds: float) -> None:
        for member in chosen:
            self._recorder.note("world", "cut_off", worker=member.name, seconds=seconds)
            await member.ask(member.actor.cut_off.remote(True))
        await asyncio.sleep(seconds)
        for member in chosen:
            await member.ask(member.actor.cut_off.remote(False))
            self._recorder.note("world", "reconnected", worker=member.name)

    # -- the end --

    async def _wind_up(self) -> float:
        """Let leases run out, then say how things stand; gives the time of the end."""
        facts: dict[str, Any] = {}
        if self._limiter is not None:
            snapshot = await self._limiter.snapshot()
            # Two leases are enough for anybody who died to be noticed.
            patience = self._recorder.now() + 2 * self._limiter.settings.lease + 1.0
            while (snapshot is None or snapshot.in_use or snapshot.waiting) and self._recorder.now() < patience:
                await asyncio.sleep(0.05)
                snapshot = await self._limiter.snapshot()
            if snapshot is not None:
                keys = ("in_use", "waiting", "granted", "handed_on", "expired", "fenced", "width")
                facts["limiter"] = {key: getattr(snapshot, key) for key in keys}
        facts["clock_error"] = self._gathering.clock_error
        self._recorder.note("world", "ended", **facts)
        ended: float = self._journal.events[-1]["at"]
        self._recorder.on = False
        return ended

    def _in_order(self, began: float, ended: float) -> None:
        """Sort by time, with zero where the load begins; what came after the end is the end of the world itself."""
        events = [event for event in self._journal.events if event["at"] <= ended]
        events.sort(key=lambda event: event["at"])
        for event in events:
            event["at"] = round(max(0.0, event["at"] - began), 6)
        self._journal.events[:] = events


def bare_address(url: str) -> str:
    """Host and port, without the scheme and without who may come in."""
    return url.rpartition("@")[2].removeprefix("http://")


@contextmanager
def _heard_by(notes: LogNotes, logger: logging.Logger) -> Iterator[None]:
    """Log lines go into the journal instead of to the terminal."""
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(notes)
    try:
        yield
    finally:
        logger.removeHandler(notes)
        logger.propagate = propagate


def limits_of(scenario: Scenario) -> LimiterSettings | None:
    """The limits of a scenario's own tool, None when it has none or the tools are other people's."""
    settings = scenario.settings
    if settings is None:
        from sfusion_tools.sandbox.config import SandboxToolConfig

        ours = [
            entry.get("config") or {}
            for entry in scenario.tools
            if isinstance(entry, dict) and str(entry.get("class_name", "")).startswith("sfusion_tools.")
        ]
        if not ours:
            return None
        settings = SandboxToolConfig.model_validate({**ours[0], "sandbox_fusion_url": "http://127.0.0.1:8080"})
    return settings.limits if settings.enable_global_rate_limit else None
