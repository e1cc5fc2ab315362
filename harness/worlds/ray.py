"""World ray: a real cluster, real processes that are really killed, and the wall clock."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, Literal
from uuid import uuid4

import ray
from ray.exceptions import RayActorError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from harness.journal import Event, Journal
from harness.scenarios.events import EventPart
from harness.scenarios.model import Scenario
from harness.worlds.errors import MissingWorld, WorldError
from harness.worlds.measuring import bounds_of, default_timeout
from harness.worlds.ray_cluster import RayCluster, doomed_nodes, open_cluster
from harness.worlds.ray_limiter import PROCESS as LIMITER
from harness.worlds.ray_limiter import RunLimiter
from harness.worlds.ray_sandbox import RemoteSandboxes, Sandboxes
from harness.worlds.ray_worker import Orders, Worker, signal_process
from harness.worlds.recorder import LogNotes, Recorder
from harness.worlds.rollouts import names as rollout_names
from harness.worlds.scaling import ScaledWorkload
from harness.worlds.wire import ClockRecorder, Gathering
from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout import RolloutLimits

LONGEST_RUN = 120.0
"""Seconds of load after which a run is broken off, also where the scenario's horizon is farther."""
_START_SECONDS = 90.0
_LEAVE_SECONDS = 15.0

SandboxOn = Literal["driver", "node"]


def run(
    scenario: Scenario,
    *,
    cluster: RayCluster | None = None,
    sandbox_on: SandboxOn = "driver",
    listen: str = "127.0.0.1",
) -> Journal:
    """Run one cell on a cluster (without one: on a cluster of its own) and give its journal.

    ``listen`` is the address of this machine at which workers on other machines reach the journal and the sandbox.
    """
    if cluster is None:
        own = open_cluster()
        try:
            return run(scenario, cluster=own, sandbox_on=sandbox_on, listen=listen)
        finally:
            own.close()
    cluster.check([scenario])
    elsewhere = cluster.elsewhere()
    if elsewhere and listen == "127.0.0.1":
        raise MissingWorld(
            f"the cluster has other machines ({', '.join(elsewhere[:3])}), which cannot reach 127.0.0.1 here; "
            "give --listen with an address of this machine that they reach"
        )
    journal = Journal.begin(scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="ray")
    # Nodes are started here: Ray does it in the main thread only, and it takes its time.
    nodes = cluster.nodes(scenario.cluster.nodes, doomed_nodes(scenario))
    play = _Run(scenario, journal, cluster, nodes, bounds_of(scenario), sandbox_on, listen)
    try:
        asyncio.run(play.run())
    except MissingWorld:
        raise
    except WorldError as error:
        journal.note(max((event["at"] for event in journal.events), default=0.0), "world", "stuck", text=str(error))
    return journal


class _Member:
    """A worker process as the driver knows it."""

    def __init__(self, name: str, node: str, actor: Any) -> None:
        self.name = name
        self.node = node
        self.actor = actor
        self.pid = 0
        self.doomed = False
        self.under_way: set[int] = set()
        self.gone = asyncio.Event()

    async def ask(self, ref: Any) -> Any:
        """Wait for an answer, but not longer than the process lives; None when it died."""
        answer = asyncio.ensure_future(_answer(ref))
        gone = asyncio.ensure_future(self.gone.wait())
        try:
            await asyncio.wait([answer, gone], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return None
            try:
                return answer.result()
            except RayActorError:
                await gone  # its connection ends when it does, and then everything that it told is here
                return None
        finally:
            answer.cancel()
            gone.cancel()


async def _answer(ref: Any) -> Any:
    return await ref


class _Run:
    def __init__(
        self,
        scenario: Scenario,
        journal: Journal,
        cluster: RayCluster,
        nodes: list[str],
        bounds: RolloutLimits,
        sandbox_on: SandboxOn,
        listen: str,
    ) -> None:
        self._scenario = scenario
        self._journal = journal
        self._cluster = cluster
        self._nodes = nodes
        self._bounds = bounds
        self._sandbox_on = sandbox_on
        self._listen = listen
        self._numbers = itertools.count(1)
        self._members: dict[str, _Member] = {}
        self._called: set[str] = set()
        self._over: set[str] = set()
        self._lives = 0
        self._limiter_lives = False
        self._closing = False
        self._limiter: RunLimiter | None = None
        self._sandboxes: Sandboxes | RemoteSandboxes
        self._gathering: Gathering
        self._recorder: Recorder

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            self._gathering = Gathering(self._hear, came=self._came, gone=self._went, host=self._listen)
            await stack.enter_async_context(self._gathering)
            self._recorder = ClockRecorder(self._journal, self._gathering.zero)
            notes = LogNotes(self._recorder)
            for name in ("sfusion_tools", "sfusion.fakes"):
                stack.enter_context(_heard_by(notes, logging.getLogger(name)))
            # Left in the opposite order: workers, limiter, sandboxes, then the journal's ears.
            try:
                async with asyncio.timeout(_START_SECONDS):
                    await self._build(stack)
            except TimeoutError:
                raise WorldError(f"the processes of the run did not start within {_START_SECONDS:g} s") from None
            began = self._recorder.now()
            await self._play()
            ended = await self._wind_up()
            self._closing = True
            await self._leave()
        self._in_order(began, ended)

    # -- what is told --

    def _hear(self, event: Event) -> None:
        if event["source"] == "world" and "call" in event:
            (self._called if event["event"] == "called" else self._over).add(event["call"])
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
        member = self._members.get(process)
        if member is None or member.gone.is_set():
            return
        if not self._closing:
            self._died(member)
        member.gone.set()

    def _limiter_went(self) -> None:
        if self._limiter_lives and not self._closing:
            self._recorder.note("world", "limiter_died", life=self._lives)
        self._limiter_lives = False

    def _died(self, member: _Member) -> None:
        """A worker's connection ended, and with it all that it could tell."""
        note = self._recorder.note
        if not member.doomed:
            note("world", "log", level="error", text=f"{member.name} died although nobody killed it")
        note("world", "worker_died", worker=member.name)
        for number in sorted(member.under_way):
            self._lost(member, number)

    def _lost(self, member: _Member, number: int) -> None:
        call = self._workload.name(number)
        facts = {"call": call, "worker": member.name}
        if call not in self._called:
            intent = self._workload.written(number).intent(default_timeout(self._scenario))
            self._recorder.note("world", "called", **facts, intent=intent, allowed=None)
        if call not in self._over:
            self._recorder.note("world", "lost", **facts)

    # -- building --

    async def _build(self, stack: AsyncExitStack) -> None:
        scenario, recorder = self._scenario, self._recorder
        settings = scenario.settings
        hidden = {value: f"headers.{name}" for name, value in (settings.headers if settings else {}).items()}
        for secret, name in hidden.items():
            recorder.keep_secret(secret, name)
        limits = limits_of(scenario)
        recorder.note(
            "world",
            "began",
            workers=scenario.cluster.workers,
            sandboxes=scenario.sandbox.instances,
            limit=limits.rate_limit if limits is not None else None,
            calls=scenario.load.calls if scenario.load is not None else None,
            secrets=recorder.secrets,
            nodes=len(set(self._nodes)),
            time_scale=scenario.time_scale,
        )
        if self._sandbox_on == "driver":
            self._sandboxes = Sandboxes(scenario, recorder, self._listen)
        else:
            wire = self._gathering.wire({}, hidden)
            # On the last node that is to live: killing a node must not take the sandbox along.
            safe = [node for number, node in enumerate(self._nodes, 1) if number not in doomed_nodes(scenario)]
            host = None if self._cluster.elsewhere() else "127.0.0.1"
            self._sandboxes = RemoteSandboxes(scenario, wire, (safe or self._nodes)[-1], host)
        stack.push_async_callback(self._sandboxes.stop)
        urls = await self._sandboxes.start()
        names = {url.removeprefix("http://"): f"sandbox-{number}" for number, url in enumerate(urls, 1)}
        for address, name in names.items():
            recorder.call_it(address, name)
        wire = self._gathering.wire(names, hidden)
        known = None
        if limits is not None:
            # The limiter lives on node-1: killing that node kills both.
            self._limiter = RunLimiter(f"run-{uuid4().hex[:12]}", limits, wire, self._nodes[0])
            stack.callback(self._limiter.close)
            known = (self._limiter.name, limits)
        if scenario.load is not None:
            default = default_timeout(scenario)
            self._workload = ScaledWorkload(scenario.load, scenario.seed, scenario.time_scale, default)
        orders = Orders(scenario, urls, wire, known, self._bounds)
        stack.callback(self._kill_all)
        per_node = scenario.cluster.workers_per_node
        for place, name in enumerate(scenario.cluster.workers):
            node = self._nodes[place // per_node]
            strategy = NodeAffinitySchedulingStrategy(node, soft=False)
            actor = Worker.options(scheduling_strategy=strategy).remote(name, orders)
            self._members[name] = _Member(name, node, actor)
        try:
            if self._limiter is not None:
                await self._limiter.start()
            for member in self._members.values():
                member.pid = await member.actor.begin.remote()
        except RayError as error:
            text = str(error).strip().splitlines()[-1]
            raise WorldError(f"{scenario.title}: a process of the run could not start: {text}") from error

    def _kill_all(self) -> None:
        for member in self._members.values():
            ray.kill(member.actor)

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
        members = itertools.cycle(self._members.values())
        callers = [self._caller(next(members), load.calls) for _ in range(min(load.concurrency, load.calls))]
        await _all(callers)

    async def _caller(self, member: _Member, calls: int) -> None:
        """One of those who call, one call after the other, as long as its worker lives."""
        while not member.gone.is_set() and (number := next(self._numbers)) <= calls:
            think = self._workload.think(number)
            if think > 0:
                await asyncio.sleep(think)
            if member.gone.is_set():
                # It died while its caller was thinking: nobody can make this call any more.
                self._lost(member, number)
                return
            member.under_way.add(number)
            await member.ask(member.actor.call.remote(number))
            member.under_way.discard(number)

    async def _roll_out(self) -> None:
        """Trajectories in turn on the workers; with ``enough`` the rest is cancelled when so many are completed."""
        part = self._scenario.rollouts
        assert part is not None
        gate = asyncio.Semaphore(part.at_once or part.count)
        completed, stop = 0, False

        async def roll(member: _Member, name: str) -> None:
            nonlocal completed, stop
            async with gate:
                if stop or member.gone.is_set():
                    return
                state = await member.ask(member.actor.roll.remote(name))
            completed += state == State.COMPLETED.value
            if part.enough is not None and completed >= part.enough and not stop:
                stop = True
                await self._tell_all("stop_rollouts")

        pairs = zip(rollout_names(part.count), itertools.cycle(self._members.values()), strict=False)
        await _all([roll(member, name) for name, member in pairs])

    async def _tell_all(self, method: str, *args: Any) -> None:
        living = [member for member in self._members.values() if not member.gone.is_set()]
        await _all([member.ask(getattr(member.actor, method).remote(*args)) for member in living])

    # -- events --

    async def _happen(self, event: EventPart) -> None:
        scale = self._scenario.time_scale
        await asyncio.sleep(event.at * scale)
        seconds = None if event.seconds is None else event.seconds * scale
        names = event.workers(self._scenario.cluster.workers)
        chosen = [self._members[name] for name in names if not self._members[name].gone.is_set()]
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
                await self._tell_all("cancel", event.target)

    async def _kill(self, target: str, chosen: list[_Member]) -> None:
        self._recorder.note("world", "killed", target=target)
        for member in chosen:
            member.doomed = True
        if target == "limiter":
            if self._limiter is not None:
                self._limiter.kill()  # Ray starts it again at once: for how long it stays away is not ours to say
        elif target.startswith("node-"):
            number = int(target.removeprefix("node-"))
            await asyncio.to_thread(self._cluster.kill_node, self._nodes[number - 1])
        for member in chosen:
            if not target.startswith("node-"):
                await self._signal(member, signal.SIGKILL)
            await member.gone.wait()

    async def _pause(self, chosen: list[_Member], seconds: float) -> None:
        for member in chosen:
            self._recorder.note("world", "worker_paused", worker=member.name, seconds=seconds)
            await self._signal(member, signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            for member in chosen:
                await self._signal(member, signal.SIGCONT)
                self._recorder.note("world", "worker_resumed", worker=member.name)

    async def _cut_off(self, chosen: list[_Member], seconds: float) -> None:
        for member in chosen:
            self._recorder.note("world", "cut_off", worker=member.name, seconds=seconds)
            await member.ask(member.actor.cut_off.remote(True))
        await asyncio.sleep(seconds)
        for member in chosen:
            await member.ask(member.actor.cut_off.remote(False))
            self._recorder.note("world", "reconnected", worker=member.name)

    async def _signal(self, member: _Member, number: int) -> None:
        if member.gone.is_set():
            return
        if self._cluster.elsewhere():
            strategy = NodeAffinitySchedulingStrategy(member.node, soft=False)
            await signal_process.options(scheduling_strategy=strategy).remote(member.pid, number)
        else:
            os.kill(member.pid, number)

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

    async def _leave(self) -> None:
        """Let the workers go, and wait until all that they told has arrived."""
        living = [member for member in self._members.values() if not member.gone.is_set()]
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await _all([member.ask(member.actor.leave.remote()) for member in living])
                for member in living:
                    await member.gone.wait()
        except TimeoutError:
            pass  # a worker that cannot go is killed with the rest

    def _in_order(self, began: float, ended: float) -> None:
        """Sort by time, with zero where the load begins; what came after the end is the end of the world itself."""
        events = [event for event in self._journal.events if event["at"] <= ended]
        events.sort(key=lambda event: event["at"])
        for event in events:
            event["at"] = round(max(0.0, event["at"] - began), 6)
        self._journal.events[:] = events


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


async def _all(work: list[Coroutine[Any, Any, Any]]) -> None:
    """Do all of it at once; the first error ends it."""
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)


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
