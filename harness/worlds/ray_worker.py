"""What runs in the worker processes of a Ray cluster: a tool with its end of the limiter, and the calls it is given."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from typing import Any

import ray

from sfusion.fakes.faults.chance import uniform
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.worlds.calling import call_tool
from sfusion.harness.worlds.measuring import default_timeout
from sfusion.harness.worlds.recorder import LogNotes
from sfusion.harness.worlds.rollouts import Rollouts
from sfusion.harness.worlds.scaling import ScaledWorkload
from sfusion.harness.worlds.toolbox import make_tools
from sfusion.harness.worlds.wire import Wire, WireRecorder
from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter import Limiter, LimiterSettings
from sfusion_tools.limiter.messages import Batch, LimiterReply
from sfusion_tools.limiter.ray_limiter import RayTransport
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.sandbox.program import Program


@dataclass(frozen=True, slots=True)
class Orders:
    """What a worker process is told about the run."""

    scenario: Scenario
    urls: list[str]
    wire: Wire
    limiter: tuple[str, LimiterSettings] | None
    bounds: RolloutLimits


class _Way(RayTransport):
    """The way to the limiter, which can be cut: what is said then is dropped in this process."""

    is_cut = False

    async def exchange(self, batch: Batch) -> LimiterReply:
        """Deliver a batch."""
        self._check()
        return await super().exchange(batch)

    async def wait(self, client: str, epoch: int, at_most: float) -> LimiterReply:
        """Wait for news."""
        self._check()
        reply = await super().wait(client, epoch, at_most)
        self._check()
        return reply

    def _check(self) -> None:
        if self.is_cut:
            raise LimiterUnreachable("the way to the limiter is cut")


class WorkerProcess:
    """One worker of a scenario. Whoever drives the run says which call is next."""

    def __init__(self, name: str, orders: Orders) -> None:
        self._name = name
        self._scenario = scenario = orders.scenario
        self._orders = orders
        self._recorder = WireRecorder(orders.wire, name)
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._rollouts: dict[str, asyncio.Task[str]] = {}
        self._way = _Way(orders.limiter[1], orders.limiter[0]) if orders.limiter is not None else None
        self._limiter: Limiter | None = None
        self._tools: list[Any] = []
        self._side: Rollouts | None = None
        if scenario.load is not None:
            default = default_timeout(scenario)
            self._workload = ScaledWorkload(scenario.load, scenario.seed, scenario.time_scale, default)
        logging.getLogger("sfusion_tools").addHandler(LogNotes(self._recorder))

    async def begin(self) -> int:
        """Make the tools; gives the id of this process."""
        self._tools = make_tools(
            self._scenario, self._orders.urls, limiter=self._limiter_here, on_event=self._hear_client
        )
        return os.getpid()

    def _limiter_here(self) -> Limiter | None:
        if self._limiter is None and self._way is not None:
            self._limiter = Limiter(self._way, name=self._name)
        return self._limiter

    def _hear_client(self, event: str, facts: dict[str, Any]) -> None:
        self._recorder.note("client", event, worker=self._name, **facts)

    # -- calls --

    async def call(self, number: int) -> None:
        """Make a call and tell the journal how it went."""
        name = self._workload.name(number)
        self._calls[name] = asyncio.ensure_future(self._call(number))
        try:
            await asyncio.wait([self._calls[name]])
        finally:
            del self._calls[name]

    async def _call(self, number: int) -> None:
        written = self._workload.written(number)
        note, settings = self._recorder.note, self._scenario.settings
        facts: dict[str, Any] = {"call": written.call, "worker": self._name}
        default = default_timeout(self._scenario)
        allowed = None
        if settings is not None and written.part.arguments is None:
            timeout = min(written.part.timeout or default, settings.longest_timeout)
            language = written.part.language or settings.default_language
            allowed = settings.bounds.of(Program("", language, timeout, settings.compile_timeout))[1]
        note("world", "called", **facts, intent=written.intent(default), allowed=allowed)
        try:
            async with asyncio.timeout(self._workload.cancelled_after(number)):
                returned = await call_tool(self._tools[0], written)
        except (TimeoutError, asyncio.CancelledError):
            note("world", "cancelled", **facts)
        else:
            note("world", "returned", **facts, **returned)

    async def cancel(self, share: float) -> None:
        """Cancel a share of the calls under way, drawn by their ids."""
        for call, task in list(self._calls.items()):
            if uniform(self._scenario.seed, "cancel event", call) < share:
                task.cancel()

    # -- rollouts --

    async def roll(self, name: str) -> str | None:
        """Drive one trajectory to its end; gives its state, None when it was cancelled."""
        self._rollouts[name] = task = asyncio.ensure_future(self._roll(name))
        try:
            await asyncio.wait([task])
        finally:
            del self._rollouts[name]
        return None if task.cancelled() else task.result()

    async def _roll(self, name: str) -> str:
        if self._side is None:
            scenario = self._scenario
            assert scenario.rollouts is not None
            self._side = Rollouts(
                scenario.rollouts,
                self._tools[0],
                self._name,
                seed=scenario.seed,
                limits=self._orders.bounds,
                note=self._recorder.note,
                timeout=default_timeout(scenario),
            )
        request = self._side.request(name)
        await self._side.run(request)
        return request.state.value

    async def stop_rollouts(self) -> None:
        """Enough are completed: cancel the rest."""
        for task in list(self._rollouts.values()):
            task.cancel()

    # -- what can be done to it --

    async def cut_off(self, off: bool) -> None:
        """Cut the way to the limiter, or mend it."""
        if self._way is not None:
            self._way.is_cut = off

    async def leave(self) -> None:
        """End in an orderly way."""
        for tool in self._tools:
            close = getattr(tool, "aclose", None)
            if close is not None:
                await close()
        if self._limiter is not None:
            await self._limiter.aclose()
        self._recorder.close()


Worker: Any = ray.remote(num_cpus=0, max_concurrency=100_000)(WorkerProcess)
"""The same as an actor. It is not restarted: a killed worker stays dead, as in every world."""


@ray.remote(num_cpus=0)  # type: ignore[untyped-decorator] # Ray has no types
def signal_process(pid: int, signal: int) -> None:
    """Send a signal to a process of the machine on which this runs."""
    os.kill(pid, signal)
