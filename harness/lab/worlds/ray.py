"""World ray: a real cluster and the wall clock; processes are really killed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, closing, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Literal
from uuid import uuid4

import ray
from ray.exceptions import RayActorError, RayError

from sfusion_tools.limiter import LimiterSettings
from sfusion_tools.rollout import RolloutLimits

from ...core.journal import Event, Journal
from ...errors import MissingWorld, WorldError
from ...real.targets import RealSandbox
from ..scenarios.model import Scenario
from .backend import Backend
from .play import Play
from .ray_cluster import RayCluster, killed_nodes, open_cluster
from .ray_limiter import PROCESS as LIMITER
from .ray_limiter import RunLimiter
from .ray_worker import WARM_UP, SecondDriver, WorkerSetup, on_node
from .ray_workers import RayWorker, RayWorkers, cause_of
from .recorder import JournalAddress, JournalServer, Recorder, RemoteRecorder, recorded_logs
from .rollout_bounds import bounds_of
from .run_notes import note_began, note_stuck
from .sandboxes import FakeSandboxes, RealSandboxes

PROCESS = "sandboxes"
"""The name of the process in the journal."""


class _SandboxProcess(FakeSandboxes):
    _recorder: RemoteRecorder

    def __init__(self, scenario: Scenario, journal: JournalAddress, host: str | None) -> None:
        super().__init__(
            scenario, RemoteRecorder(journal, PROCESS), host or ray.util.get_node_ip_address()
        )

    async def settle(self) -> None:
        # This runs in the loop that serves: what has been sent is recorded, if not yet, then in
        # this turn.
        await asyncio.sleep(0)

    async def stop(self) -> None:
        await super().stop()
        self._recorder.close()


_actor_class: Any = ray.remote(num_cpus=0)(_SandboxProcess)


class RemoteSandboxes(FakeSandboxes):
    """The driver's handle of that process; with ``host`` None it listens where other machines can
    reach it."""

    def __init__(
        self, scenario: Scenario, journal: JournalAddress, node: str, host: str | None
    ) -> None:
        self._actor = _actor_class.options(scheduling_strategy=on_node(node)).remote(
            scenario, journal, host
        )

    async def start(self) -> list[str]:
        urls: list[str] = await self._actor.start.remote()
        return urls

    async def begin(self) -> None:
        await self._actor.begin.remote()

    async def do(self, kind: str, target: str, seconds: float | None, ping: Any) -> None:
        await self._actor.do.remote(kind, target, seconds, ping)

    async def settle(self) -> None:
        with suppress(RayActorError):  # it died; what it had recorded was sent before
            await self._actor.settle.remote()

    async def stop(self) -> None:
        """Stop them and kill the process."""
        try:
            await self._actor.stop.remote()
        except RayActorError:
            pass  # it never started, or died
        finally:
            ray.kill(self._actor)


LONGEST_RUN = 120.0
"""Hard cap on the seconds of load, even if the scenario's ``horizon`` is larger."""
START_SECONDS = 90.0
"""How long processes and tools may take to start."""
_LOOK_SECONDS = 0.01
"""Pause between two looks at the journal; chosen: shorter than any event of a load."""

SandboxOn = Literal["driver", "node"]


@dataclass
class RayBackend(Backend):
    """The processes of one run. ``run`` starts them, plays the scenario and ends them again."""

    scenario: Scenario
    journal: Journal
    cluster: RayCluster
    nodes: list[str]
    bounds: RolloutLimits
    sandbox_on: SandboxOn
    listen: str
    real: Sequence[RealSandbox] = ()
    start_timeout: float = START_SECONDS

    poll_seconds = 0.05
    _starting = "the sandboxes"
    _limiter_lives = 0
    _limiter_connections = 0

    def __post_init__(self) -> None:
        self.horizon = min(self.scenario.horizon, LONGEST_RUN)
        self.time_scale = self.scenario.time_scale
        self.workers: list[RayWorker]
        self._driver: SecondDriver | None = None
        self._server: JournalServer
        self._workers: RayWorkers

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            # Closed in the opposite order: workers, limiter, sandboxes, then the journal.
            self._server = await stack.enter_async_context(
                JournalServer(
                    self.journal.add,
                    on_connect=self._on_connect,
                    on_disconnect=self._on_disconnect,
                    host=self.listen,
                )
            )
            self.recorder = Recorder(self.journal, time.monotonic, self._server.zero)
            self._workers = RayWorkers(
                self.scenario, self.recorder, local=not self.cluster.other_machines()
            )
            stack.enter_context(recorded_logs(self.recorder))
            try:
                async with asyncio.timeout(self.start_timeout):
                    await self._start(stack)
            except TimeoutError:
                late = f"{self._starting} did not start"
                if self._starting == "the workers":
                    late = self._workers.unready
                raise WorldError(
                    f"{late} within {self.start_timeout:g} s (--start-timeout)"
                ) from None
            except RayError as error:
                raise WorldError(f"{self._starting} could not start: {cause_of(error)}") from error
            self.workers = self._workers.workers
            await self.sandboxes.begin()
            began = self.recorder.now()
            play = Play(self.scenario, self)
            await play.run()
            await play.wind_up()
            ended: float = self.journal.events[-1]["at"]
            await self._workers.close()
        self._sort(began, ended)

    def _sort(self, began: float, ended: float) -> None:
        """Sort by time, with zero where the load begins; events of the warm-up and of the teardown
        go."""
        load = (event for event in self.journal.events if event.get("call") != WARM_UP.call)
        events = [event for event in load if event["at"] <= ended]
        events.sort(key=lambda event: event["at"])
        for event in events:
            event["at"] = round(max(0.0, event["at"] - began), 6)
        self.journal.events[:] = events

    # -- what the processes report --

    def _on_connect(self, process: str, at: float) -> None:
        self._workers.on_connect(process)
        if process == LIMITER:
            if self._limiter_connections:
                # That of a predecessor, whose end is slower than the new start.
                self._record_limiter_death()
            self._limiter_lives += 1
            self._limiter_connections += 1
            first = self._limiter_lives == 1
            self.journal.note(at, "world", "limiter_started", life=self._limiter_lives, first=first)

    def _on_disconnect(self, process: str) -> None:
        if process == LIMITER:
            self._limiter_connections -= 1
            if not self._limiter_connections:
                self._record_limiter_death()
        self._workers.on_disconnect(process)

    def _record_limiter_death(self) -> None:
        if not self._workers.closing:
            self.recorder.note("world", "limiter_died", life=self._limiter_lives)

    # -- starting --

    async def _start(self, stack: AsyncExitStack) -> None:
        """Start sandboxes, limiter and workers; the stack ends them again."""
        scenario = self.scenario
        note_began(
            self.recorder,
            scenario,
            sandboxes=max(scenario.sandbox.instances, len(self.real)),
            nodes=len(set(self.nodes)),
            time_scale=scenario.time_scale,
        )
        hidden = {text: name for name, text in scenario.secrets.items()}
        self.sandboxes = self._make_sandboxes(hidden)
        stack.push_async_callback(self.sandboxes.stop)
        urls = await self.sandboxes.start()
        names = {bare_address(url): f"sandbox-{number}" for number, url in enumerate(urls, 1)}
        for address, name in names.items():
            self.recorder.alias(address, name)
        journal = self._server.address(names, hidden)

        known = None
        settings = scenario.settings
        if settings is not None and settings.enable_global_rate_limit:
            limiter = await self._start_limiter(stack, settings.limits, journal)
            known = (limiter.name, settings.limits)
        setup = WorkerSetup(scenario, urls, journal, known, self.bounds)
        await self._start_workers(stack, setup)

    async def _start_limiter(
        self, stack: AsyncExitStack, limits: LimiterSettings, journal: JournalAddress
    ) -> RunLimiter:
        # Where nodes are killed, the limiter is on node-1: killing that node kills both.
        home = self.nodes[0] if killed_nodes(self.scenario) else None
        name = f"run-{uuid4().hex[:12]}"
        self.limiter = limiter = RunLimiter(name, limits, journal, home, self.recorder)
        stack.callback(limiter.close)
        self._starting = "the limiter"
        await limiter.start()
        return limiter

    async def _start_workers(self, stack: AsyncExitStack, setup: WorkerSetup) -> None:
        cluster = self.scenario.cluster
        places: dict[str, str] = {}
        for index, name in enumerate(cluster.workers):
            places[name] = self.nodes[index // cluster.workers_per_node]
        stack.callback(self._workers.kill)
        events = self.scenario.events
        if any(event.kind == "kill" and event.target == "driver" for event in events):
            self._driver = SecondDriver(self.cluster.address, f"run-{uuid4().hex[:12]}")
            stack.callback(self._driver.kill)
        self._starting = "the workers"
        await self._workers.start(places, setup, self._driver)

    def _make_sandboxes(self, hidden: dict[str, str]) -> FakeSandboxes:
        scenario = self.scenario
        if self.real:
            return RealSandboxes(scenario, self.recorder, self.real, self.listen)
        if self.sandbox_on == "driver":
            return FakeSandboxes(scenario, self.recorder, self.listen)
        # On the last node that survives: killing a node must not kill the sandbox.
        killed = killed_nodes(scenario)
        safe = [node for number, node in enumerate(self.nodes, 1) if number not in killed]
        home = (safe or self.nodes)[-1]
        host = None if self.cluster.other_machines() else "127.0.0.1"
        return RemoteSandboxes(scenario, self._server.address({}, hidden), home, host)

    # -- what the play needs (see play.Backend) --

    async def first_request(self) -> None:
        seen = 0
        while not any(_is_request_or_end(event) for event in self.journal.events[seen:]):
            seen = len(self.journal.events)
            await asyncio.sleep(_LOOK_SECONDS)

    async def kill(self, target: str, names: list[str]) -> None:
        chosen = [worker for worker in self.workers if worker.name in names]
        for worker in chosen:
            worker.killed = True
        if target == "driver" and self._driver is not None:
            self._driver.kill()
        elif target.startswith("node-"):
            number = int(target.removeprefix("node-"))
            await asyncio.to_thread(self.cluster.kill_node, self.nodes[number - 1])
        else:
            for worker in chosen:
                await worker.signal(signal.SIGKILL)
        for worker in chosen:
            await worker.gone.wait()

    async def broadcast(self, method: str, *args: Any) -> None:
        await self._workers.broadcast(method, *args)

    def closing_facts(self) -> dict[str, Any]:
        return {"clock_error": self._server.clock_error}


def _is_request_or_end(event: Event) -> bool:
    if event.get("call") == WARM_UP.call:
        return False
    ends = ("returned", "cancelled", "lost", "rollout_ended")
    return event["event"] in ("arrived", "attempt_started", *ends)


def bare_address(url: str) -> str:
    """Return host and port, without scheme and credentials."""
    return url.rpartition("@")[2].removeprefix("http://")


def run(
    scenario: Scenario,
    *,
    cluster: RayCluster | None = None,
    sandbox_on: SandboxOn = "driver",
    listen: str = "127.0.0.1",
    real: Sequence[RealSandbox] = (),
    start_timeout: float = START_SECONDS,
) -> Journal:
    """Run one cell of a scenario on a cluster (default: one of its own) and return its journal.

    ``listen`` is the address at which workers on other machines reach the journal and the sandbox
    on this one. ``real`` are sandboxes to use instead of fakes; the scenario's programs are then
    real code. ``start_timeout`` is how many seconds processes and tools may take to start.
    """
    with closing(open_cluster()) if cluster is None else nullcontext(cluster) as cluster:
        cluster.check([scenario])
        others = cluster.other_machines()
        if others and listen == "127.0.0.1":
            shown = ", ".join(others[:3])
            raise MissingWorld(
                f"the cluster has other machines ({shown}), which cannot reach 127.0.0.1 on this "
                "one; give --listen with an address that they can reach"
            )
        journal = Journal.begin(
            scenario=scenario.scenario, cell=scenario.cell, seed=scenario.seed, world="ray"
        )
        if real:
            scenario = scenario.with_real_programs()
        # Nodes are started here because Ray does that only in the main thread, and it is slow.
        nodes = cluster.nodes(scenario.cluster.nodes, killed_nodes(scenario))
        try:
            bounds = bounds_of(scenario)
            backend = RayBackend(
                scenario,
                journal,
                cluster,
                nodes,
                bounds=bounds,
                sandbox_on=sandbox_on,
                listen=listen,
                real=real,
                start_timeout=start_timeout,
            )
            asyncio.run(backend.run())
        except MissingWorld:
            raise
        except WorldError as error:
            note_stuck(journal, error)
        return journal
