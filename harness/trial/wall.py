"""The stage on the wall clock: for clients with threads, blocking calls or processes of their own.

Sandboxes listen on real sockets, each in a thread of its own, so a client that blocks is answered all the same. In this
process the clock runs faster (``fast_clock``); another process keeps its own time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from sfusion.harness.lab.worlds.fast_clock import fast_clock
from sfusion.harness.trial.client import Settings, TrialClient
from sfusion.harness.trial.plan import Scene, TrialPlan
from sfusion.harness.trial.playing import captured, play_scene, task_name
from sfusion.harness.trial.record import PlayedScene, Record
from sfusion.harness.trial.sandbox import TrialSandbox

SPEED = 10.0
"""How many seconds of a plan pass in one of ours, where the clock of the client can be made faster."""
LONGEST = 55.0
"""Real seconds after which no further scene begins."""
_JITTER = 0.05
"""Real seconds by which what happens in threads and processes may be late."""
_PATIENCE = 12.0
"""Real seconds for one scene."""


class WallStage:
    """Each scene has sandboxes, a client and an event loop of its own. ``child``: the client is another process."""

    def __init__(self, *, child: bool = False, longest: float = LONGEST) -> None:
        self._child = child
        self._speed = 1.0 if child else SPEED
        self._longest = longest

    def play(self, plan: TrialPlan, make_client: Callable[[], TrialClient]) -> Record:
        """Play all scenes that the client can take, until the time is up."""
        record = Record(plan.seed, "wall", make_client().takes, _JITTER * self._speed)
        began = time.monotonic()
        for planned in plan.scenes:
            scene = planned if isinstance(planned, Scene) else planned(record)
            if scene is None:
                continue
            if why := self._not_for(scene, record.takes, time.monotonic() - began):
                record.left_out[scene.name] = why
            else:
                record.scenes[scene.name] = self._scene(scene, plan, make_client())
        return record

    def _not_for(self, scene: Scene, takes: frozenset[str], passed: float) -> str:
        if lacking := scene.needs - takes:
            return ", ".join(sorted(lacking))
        if self._child and not scene.cheap:
            return "its waits are too long for another process, whose clock cannot be made faster"
        if self._child and any(event.kind == "clock_jump" for event in scene.events):
            return "the clock of another process cannot be set"
        return f"the trial had taken {self._longest:g} s" if passed > self._longest else ""

    def _scene(self, scene: Scene, plan: TrialPlan, client: TrialClient) -> PlayedScene:
        scene = replace(scene, horizon=min(scene.horizon, _PATIENCE * self._speed))
        played = PlayedScene(scene.name, Settings(()))
        with captured(played), fast_clock(self._speed), ExitStack() as stack:
            sandboxes = [
                stack.enter_context(TrialSandbox(number, scene, plan.seed, played.requests, played.other_requests))
                for number in range(scene.sandboxes)
            ]
            urls = tuple(sandbox.url for sandbox in sandboxes)
            played.settings = Settings(urls, **{**plan.settings, **scene.settings})
            asyncio.run(_run(scene, client, sandboxes, played))
        played.printed += getattr(client, "printed", "")
        return played


async def _run(scene: Scene, client: TrialClient, sandboxes: list[TrialSandbox], played: PlayedScene) -> None:
    with _jumping() as jump:
        await play_scene(scene, client, played.settings, sandboxes, played, jump=jump)
    await asyncio.sleep(_JITTER)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    played.tasks_left = tuple(sorted(map(task_name, left)))


@contextmanager
def _jumping() -> Iterator[Callable[[float], None]]:
    """Yield a function that makes the wall clock jump."""
    clock, jumped = time.time, 0.0

    def jump(seconds: float) -> None:
        nonlocal jumped
        jumped += seconds

    time.time = lambda: clock() + jumped
    try:
        yield jump
    finally:
        time.time = clock
