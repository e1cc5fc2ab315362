"""The stage in virtual time: a whole trial in a second or two, the same on every machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any

from ..errors import WorldError
from ..lab.scenarios.parts import SchedulePart
from ..lab.worlds.schedules import ScheduledQueue, make_schedule, running_as
from ..lab.worlds.virtual_time import VirtualTimeLoop, run_virtually
from .client import Settings, TrialClient
from .plan import Scene, TrialPlan
from .playing import captured, jumping, play_scene
from .record import PlayedScene, Record
from .sandbox import TrialSandbox

_UNSEEN = (
    "no request reached the sandbox over the event loop: this client sends none, or does "
    "its I/O in threads, processes "
    "or blocking sockets, which virtual time cannot play"
)


def play_virtually(plan: TrialPlan, make_client: Callable[[], TrialClient]) -> Record:
    """Play all scenes for which the client takes what they need; each has an event loop, and a
    client, of its own."""
    record = Record("virtual", make_client().takes)
    for planned in plan.scenes:
        scene = planned if isinstance(planned, Scene) else planned(record)
        if scene is None:
            continue
        if lacking := scene.needs - record.takes:
            record.left_out[scene.name] = ", ".join(sorted(lacking))
            continue
        played = _play(scene.fitting(record.takes), plan, make_client())
        if not (played.requests or played.other_requests) and not record.scenes and scene.calls:
            record.unplayable = _UNSEEN
            return record
        record.scenes[scene.name] = played
    return record


def _play(scene: Scene, plan: TrialPlan, client: TrialClient) -> PlayedScene:
    played = PlayedScene(scene, Settings(()))
    queue = None
    if scene.shuffled:
        queue = ScheduledQueue(make_schedule(SchedulePart(random=plan.seed)))
    with captured(played):  # also what is logged when the loop closes
        try:
            run_virtually(_run(scene, plan, client, played), queue)
        except WorldError as error:
            played.broken_off = str(error)
    return played


async def _run(scene: Scene, plan: TrialPlan, client: TrialClient, played: PlayedScene) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    async with AsyncExitStack() as stack:
        sandboxes = []
        for number in range(scene.sandboxes):
            with running_as(f"sandbox-{number}"):
                sandbox = TrialSandbox(
                    number, scene, plan.seed, played.requests, played.other_requests
                )
                stack.push_async_callback(sandbox.stop, grace=0.0)
                sandboxes.append(await sandbox.start())
        urls = tuple(sandbox.url for sandbox in sandboxes)
        settings = played.settings = Settings(
            urls, scale=plan.scale, **{**plan.settings, **scene.settings}
        )
        with virtual_clocks(loop) as jump:
            await play_scene(scene, client, settings, sandboxes, played, jump=jump)
    await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    played.tasks_left = tuple(
        sorted(name for task in left if (name := _named(task)) != "Connection.start")
    )


def _named(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", "") or task.get_name()


def virtual_clocks(loop: VirtualTimeLoop) -> AbstractContextManager[Callable[[float], None]]:
    """Let the clocks of ``time`` follow the loop; yield a function that makes the wall clock
    jump."""
    wall, began = time.time(), time.monotonic()

    def monotonic() -> float:
        return began + loop.time()

    return jumping(lambda: wall + loop.time(), monotonic=monotonic, perf_counter=monotonic)
