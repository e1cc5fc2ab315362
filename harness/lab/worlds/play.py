"""Plays a scenario: load or rollouts, events, the horizon and the wind-up, the same in every world.

A world implements the ``Backend``. What happens inside a worker is in ``worker.py``.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sfusion_tools.limiter import Snapshot
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State

from ...core.journal import Event
from ..scenarios.events import EventPart
from ..scenarios.model import Scenario
from ..toy import simulate
from .backend import Backend, LimiterHandle, WorkerHandle
from .calling import Workload
from .rollout_bounds import names as rollout_names
from .run_notes import note_never_made
from .schedules import DRIVER, running_as

if TYPE_CHECKING:
    from .training import OnSample

_ENDED_WITH = ("in_use", "waiting", "granted", "handed_on", "expired", "fenced", "width")
"""What the event ``ended`` says about the limiter."""
_AFTER_LEASES = 1.0
"""Seconds that the limiter has after two leases to notice a death; chosen."""


class Play:
    """One scenario on one backend."""

    def __init__(
        self, scenario: Scenario, backend: Backend, on_sample: OnSample | None = None
    ) -> None:
        """``on_sample`` is called with each trajectory of a training that has ended, and its
        score and step."""
        self._scenario = scenario
        self._on_sample = on_sample
        self._backend = backend
        self._note = backend.recorder.note
        self._made = 0
        """Calls of the load that were made or are being made."""

    async def run(self) -> None:
        """Play load and events until the load has ended or the horizon is reached."""
        backend = self._backend
        loop = asyncio.get_running_loop()
        events = [
            loop.create_task(self._event(event, self._point(event)))
            for event in self._scenario.events
        ]
        work = loop.create_task(self._work())
        try:
            await asyncio.wait([work], timeout=backend.horizon)
            if not work.done():
                self._note("world", "broken_off", after=backend.horizon)
                backend.on_broken_off()
        finally:
            backend.recorder.journal.watchers.clear()
            for task in (work, *events):
                task.cancel()
        await _all([work, *events])

    def _work(self) -> Coroutine[Any, Any, None]:
        """Return what the scenario does: single calls, a load, a training or rollouts."""
        if self._scenario.has_single_calls:
            return self._backend.make_single_calls()
        if self._scenario.load is not None:
            return self._load()
        if self._scenario.training is not None:
            return self._train()
        return self._roll_out()

    # -- load --

    async def _load(self) -> None:
        load = self._scenario.load
        assert load is not None
        workload = Workload(self._scenario, self._backend.time_scale)
        callers = min(load.concurrency, load.calls)
        workers = list(itertools.islice(itertools.cycle(self._backend.workers), callers))
        for step in range(1, load.steps + 1):
            last = load.calls * step // load.steps
            await _together(
                (worker.name, self._caller(worker, workload, last)) for worker in workers
            )
            if step < load.steps:
                await asyncio.sleep(load.step_pause * self._backend.time_scale)
                self._note("world", "step_ended", step=step)

    async def _caller(self, worker: WorkerHandle, workload: Workload, last: int) -> None:
        """Make one call after the other, up to number ``last`` of all, for as long as the worker
        lives."""
        while worker.alive and self._made < last:
            self._made += 1
            number = self._made
            think = workload.think(number)
            if think > 0:
                await asyncio.sleep(think)
            if not worker.alive:
                # The worker died while its caller was thinking.
                called = workload.called(workload.prepare(number), worker.name)
                note_never_made(self._backend.recorder, called)
                return
            await worker.call(number)

    # -- rollouts --

    async def _roll_out(self) -> None:
        """Distribute trajectories over the workers; when ``enough`` are completed, cancel the
        rest."""
        part = self._scenario.rollouts
        assert part is not None
        gate = asyncio.Semaphore(part.at_once or part.count)
        completed = 0
        stop = False

        async def roll(worker: WorkerHandle, name: str) -> None:
            nonlocal completed, stop
            async with gate:
                if stop or not worker.alive:
                    return
                state = await worker.roll(name)
                if state == State.COMPLETED.value:
                    completed += 1
                if part.enough is not None and completed >= part.enough and not stop:
                    stop = True
                    await self._backend.broadcast("cancel_rollouts")

        pairs = self._with_workers(rollout_names(part.count))
        await _together((worker.name, roll(worker, name)) for name, worker in pairs)

    def _with_workers(self, names: Iterable[str]) -> Iterable[tuple[str, WorkerHandle]]:
        """Deal trajectories out to the workers in turn."""
        return zip(names, itertools.cycle(self._backend.workers), strict=False)

    async def _train(self) -> None:
        """Let the samples of each step run, update the toy, and record what it learned beside
        its fault-free twin."""
        from .training import ToyModel

        part = self._scenario.training
        assert part is not None
        model = ToyModel(
            part,
            self._scenario.seed,
            self._note,
            real=self._scenario.sandbox.executor == "python",
            on_sample=self._on_sample,
        )
        self._backend.use_model(model)
        for twin in simulate(part, self._scenario.seed):
            pairs = self._with_workers(model.begin())
            await _together(
                (worker.name, worker.roll(name)) for name, worker in pairs if worker.alive
            )
            if model.stopped:
                self._note("world", "training_stopped", step=twin.step, why="guard")
                return
            self._note("world", "trained", **model.learn(twin))
            await asyncio.sleep(part.update_time * self._backend.time_scale)

    # -- events --

    def _point(self, event: EventPart) -> asyncio.Event | None:
        """Return what is set when the journal reaches the point of an event; None if the event
        has none."""
        point = event.after
        if point is None:
            return None
        reached = asyncio.Event()
        count = 0

        def watch(noted: Event) -> None:
            nonlocal count
            count = point.count(count, noted)
            if count >= point.number:
                reached.set()

        self._backend.recorder.journal.watchers.append(watch)
        return reached

    async def _event(self, event: EventPart, point: asyncio.Event | None) -> None:
        """Wait until it is time for an event, and let it happen."""
        backend = self._backend
        if point is not None:
            await point.wait()
        elif event.at > 0:
            await backend.first_request()
        await asyncio.sleep(event.at * backend.time_scale)
        seconds = None if event.seconds is None else event.seconds * backend.time_scale
        target = str(event.target)
        if target == "limiter" or event.kind == "resize":
            if backend.limiter is not None:
                await self._disturb(backend.limiter, event, seconds)
        elif event.kind in ("restart", "crash", "wedge"):
            await backend.sandboxes.do(event.kind, target, seconds, event.ping)
        elif event.kind == "cancel":
            await backend.broadcast("cancel_calls", event.target)
        elif event.kind == "clock_jump":
            self._note("world", "clock_jumped", seconds=event.target)
            backend.jump(event.target)
        else:
            await self._disturb_workers(event, seconds)

    async def _disturb_workers(self, event: EventPart, seconds: float | None) -> None:
        target = str(event.target)
        names = event.workers(self._scenario.cluster.workers)
        # Whatever a driver created dies with it.
        workers = [
            worker
            for worker in self._backend.workers
            if worker.alive and (worker.name in names or target == "driver")
        ]
        lasts = seconds or 0.0
        match event.kind:
            case "kill":
                self._note("world", "killed", target=target)
                await self._backend.kill(target, [worker.name for worker in workers])
            case "pause":
                await _together(
                    (DRIVER, self._pause("worker", worker, lasts, worker=worker.name))
                    for worker in workers
                )
            case "cut_off":
                await _together((DRIVER, self._cut_off(worker, lasts)) for worker in workers)

    async def _disturb(
        self, limiter: LimiterHandle, event: EventPart, seconds: float | None
    ) -> None:
        match event.kind:
            case "kill":
                await limiter.kill(seconds)
            case "pause":
                await self._pause("limiter", limiter, seconds or 0.0)
            case "restart":
                await limiter.restart()
            case "resize":
                await limiter.resize(event.target)

    async def _pause(
        self, kind: str, paused: WorkerHandle | LimiterHandle, seconds: float, **named: str
    ) -> None:
        self._note("world", f"{kind}_paused", **named, seconds=seconds)
        await paused.pause()
        try:
            await asyncio.sleep(seconds)
        finally:
            await paused.resume()
        self._note("world", f"{kind}_resumed", **named)

    async def _cut_off(self, worker: WorkerHandle, seconds: float) -> None:
        self._note("world", "cut_off", worker=worker.name, seconds=seconds)
        await worker.cut_off(True)
        await asyncio.sleep(seconds)
        await worker.cut_off(False)
        self._note("world", "reconnected", worker=worker.name)

    # -- the end --

    async def wind_up(self) -> None:
        """Wait until all permits are returned, for two leases at most, and record the event
        ``ended``, the last one."""
        backend = self._backend
        facts: Event = {}
        limiter = backend.limiter
        lease = None if limiter is None else limiter.lease
        if limiter is not None and lease is not None:
            snapshot = await self._last_snapshot(limiter, lease)
            if snapshot is not None:
                facts["limiter"] = {key: getattr(snapshot, key) for key in _ENDED_WITH}
        await backend.leave()
        await backend.sandboxes.settle()
        self._note("world", "ended", **facts, **backend.closing_facts())
        backend.recorder.on = False

    async def _last_snapshot(self, limiter: LimiterHandle, lease: float) -> Snapshot | None:
        """Return what the limiter knows when all permits are back, or after two leases.

        By then it has noticed every death.
        """
        backend = self._backend
        await backend.flush()
        until = backend.recorder.now() + 2 * lease + _AFTER_LEASES
        snapshot = await limiter.snapshot()
        while backend.recorder.now() < until:
            if snapshot is not None and not snapshot.in_use and not snapshot.waiting:
                break
            await asyncio.sleep(backend.poll_seconds or lease / 10 + 0.01)
            snapshot = await limiter.snapshot()
        return snapshot


async def _together(works: Iterable[tuple[str, Coroutine[Any, Any, object]]]) -> None:
    """Run each in the process that it belongs to, which is named first."""
    tasks = []
    for process, work in works:
        with running_as(process):
            tasks.append(asyncio.ensure_future(work))
    await _all(tasks)


async def _all(tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Wait for all of them, then raise the first error."""
    if tasks:
        await asyncio.wait(tasks)  # in as many steps on every Python; those of gather depend on it
    for task in tasks:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            raise error
