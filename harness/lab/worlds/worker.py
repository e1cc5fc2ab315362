"""The inside of a worker: its tool, its client of the limiter, and the calls and rollouts it is
running.

World sim runs several of these in one event loop, world ray one per process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sfusion_tools.limiter import Limiter
from sfusion_tools.limiter.client import Transport
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.sandbox.arguments import BadArguments, read_arguments
from sfusion_tools.sandbox.fleet import Fleet
from sfusion_tools.sandbox.program import RUNNABLE, Program

from ....fakes.faults.chance import uniform
from ...core.journal import Event
from ..scenarios.model import Scenario
from ..scenarios.program import PreparedCall
from .calling import Workload, call_tool, make_tools
from .recorder import Recorder

if TYPE_CHECKING:
    from .worker_rollouts import Model, Rollouts


class Worker:
    """One worker. Calls and rollouts run as tasks of their own, so that they can be cancelled."""

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        recorder: Recorder,
        transport: Transport | None,
        bounds: RolloutLimits,
        time_scale: float = 1.0,
    ) -> None:
        self.name = name
        self.alive = True
        self._scenario = scenario
        self._recorder = recorder
        self._transport = transport
        self._bounds = bounds
        self._limiter: Limiter | None = None
        # A worker knows the sandboxes as one process does, also where several share a loop.
        self._fleet = Fleet()
        self._tools: list[Any] = []
        self._side: Rollouts | None = None
        self.model: Model | None = None
        """What plays the model; by default the script of the scenario."""
        self._workload = Workload(scenario, time_scale)
        self._calls: dict[str, asyncio.Task[None]] = {}
        self._not_made: dict[str, Event] = {}
        """Calls whose task has not begun yet, with the keys of the event ``called`` for each."""
        self._made: deque[str] = deque(maxlen=100)
        """The last calls; each is an instance of the tool."""
        self._rollouts: dict[str, asyncio.Task[str]] = {}

    def make_tools(self, urls: list[str]) -> None:
        """Make the tools for sandboxes at these addresses."""
        self._tools = make_tools(
            self._scenario,
            urls,
            limiter=self.limiter,
            on_event=self.client_event,
            fleet=self._fleet,
        )

    def limiter(self) -> Limiter | None:
        """Return the client of the limiter, made on first use; None when the scenario has no
        limiter."""
        if self._limiter is None and self._transport is not None:
            self._limiter = Limiter(self._transport, name=self.name)
        return self._limiter

    def client_event(self, event: str, facts: dict[str, Any]) -> None:
        """Record an event of the sandbox client, unless the worker is dead."""
        if self.alive:
            self._recorder.note("client", event, worker=self.name, **facts)

    async def call(self, number: int) -> None:
        """Make a call of the load and wait until it has ended."""
        prepared = self._workload.prepare(number)
        self._not_made[prepared.call] = self._workload.called(prepared, self.name)
        task = asyncio.ensure_future(self._call(number, prepared))
        _keep(self._calls, prepared.call, task)
        await asyncio.wait([task])

    async def _call(self, number: int, prepared: PreparedCall) -> None:
        note = self._recorder.note
        called = self._not_made.pop(prepared.call)
        self._made.append(prepared.call)
        called["allowed"] = self._allowed(prepared, prepared.arguments)
        asked = self._scenario.asked(prepared.arguments)
        if asked:
            called["asked"] = asked
        note("world", "called", **called)
        facts = {"call": prepared.call, "worker": self.name}
        try:
            async with asyncio.timeout(self._workload.cancelled_after(number)):
                returned = await call_tool(self._tools[0], prepared)
        except (TimeoutError, asyncio.CancelledError) as error:
            if self.alive:
                note("world", "cancelled", **facts)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            note("world", "returned", **facts, **returned)
        finally:
            # At once: it must not be lost with a worker that dies now.
            self._calls.pop(prepared.call, None)

    def _allowed(self, prepared: PreparedCall | None, arguments: Any) -> float | None:
        """Return the seconds that our own tool allows for a call; None for other tools.

        What the scenario says of the program counts. The arguments count if it says nothing else,
        and for calls that it does not know, such as those of a malformed turn.
        """
        settings = self._scenario.settings
        if settings is None:
            return None
        program = Program(
            "", settings.default_language, settings.default_timeout, settings.compile_timeout
        )
        part = prepared.part if prepared is not None else None
        if part is None or part.arguments is not None:
            with suppress(BadArguments):  # then it is not sent at all
                program, _ = read_arguments(arguments, settings, RUNNABLE)
        else:
            timeout = min(part.timeout or settings.default_timeout, settings.longest_timeout)
            program = replace(program, language=part.language or program.language, timeout=timeout)
        allowed: float = settings.bounds.of(program)[1]
        return allowed

    async def roll(self, name: str) -> str | None:
        """Run a trajectory to its end and return its state; None if it was cancelled."""
        task = asyncio.ensure_future(self._roll(name))
        _keep(self._rollouts, name, task)
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def _roll(self, name: str) -> str:
        from .worker_rollouts import Rollouts, ScriptedModel

        scenario = self._scenario
        if self._side is None:
            if self.model is None:
                assert scenario.rollouts is not None
                self.model = ScriptedModel(
                    scenario.rollouts, scenario.seed, self._tools[0].name, self._recorder.note
                )
            self._side = Rollouts(
                scenario,
                model=self.model,
                own_tool=self._tools[0],
                limits=self._bounds,
                note=self._recorder.note,
                worker=self.name,
                allowed=self._allowed,
                is_alive=lambda: self.alive,
            )
        request = self._side.request(name)
        await self._side.run(request)
        return request.state.value

    def look_inside(self) -> None:
        """Record how many of the instances that were released the tool keeps; those under way may
        be there."""
        released = [call for call in self._made if call not in self._calls]
        if not released:
            return
        containers = list(_containers(self._tools[0]))
        kept = [call for call in released if any(call in inside for inside in containers)]
        facts: Event = {"released": len(released), "kept": len(kept)}
        if kept:
            facts["first"] = kept[0]
        self._recorder.note("world", "looked_inside", worker=self.name, **facts)

    async def cancel_calls(self, share: float) -> None:
        """Cancel a share of the calls under way, drawn by their ids."""
        seed = self._scenario.seed
        for call, task in list(self._calls.items()):
            is_made = call not in self._not_made
            if is_made and uniform(seed, "cancel event", call) < share:
                task.cancel()

    async def cancel_rollouts(self) -> None:
        """Cancel all trajectories under way."""
        for task in list(self._rollouts.values()):
            task.cancel()

    async def close(self) -> None:
        """Close the tools and detach from the limiter."""
        for tool in self._tools:
            close = getattr(tool, "aclose", None)
            if close is not None:
                await close()
        if self._limiter is not None:
            await self._limiter.aclose()


def _containers(tool: Any) -> Iterator[Any]:
    """Yield what a tool may keep instances in, by their id."""
    for value in vars(tool).values() if hasattr(tool, "__dict__") else ():
        if isinstance(value, dict | list | set | deque):
            yield value


def _keep(tasks: dict[str, asyncio.Task[Any]], name: str, task: asyncio.Task[Any]) -> None:
    tasks[name] = task
    task.add_done_callback(lambda _: tasks.pop(name, None))
