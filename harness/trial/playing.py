"""Plays one scene on the running event loop: its sandboxes, its events and its calls, each
recorded."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import logging
import os
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from typing import Any

from ..errors import WorldError
from ..lab.worlds.replacing import replaced
from .client import Settings, Told, TrialClient
from .plan import SandboxEvent, Scene, TrialCall
from .record import PlayedCall, PlayedScene
from .sandbox import TrialSandbox

_GRACE = 5.0
"""Seconds that a cancelled call, and the end of a client, get before they count as stuck, on an
idle machine."""
_SETTLED = 2.0
"""Seconds after the last call in which a sandbox learns that nobody waits for its answers any
more."""
_FEW = 2
"""Connections that any client may keep."""
_PAUSE = 0.001
"""Seconds between a call and the next, so that also in virtual time a request is seen to be of
one of them."""
_DEEPEST = 6


async def play_scene(
    scene: Scene,
    client: TrialClient,
    settings: Settings,
    sandboxes: list[TrialSandbox],
    played: PlayedScene,
    *,
    jump: Callable[[float], None] = lambda seconds: None,
    grace: float = _GRACE,
) -> None:
    """Play the calls of a scene against sandboxes that listen already, and write what happens
    into ``played``."""
    loop = asyncio.get_running_loop()
    with captured(played):
        try:
            await client.begin(settings)
        except Exception as error:
            played.raised_at_end = f"begin: {type(error).__name__}: {error}"
            return
        played.began = loop.time()
        events = asyncio.ensure_future(_events(scene.events, sandboxes, played.began, jump))
        before, tasks = None, list[asyncio.Task[None]]()
        for one in scene.calls:
            before = asyncio.ensure_future(
                _make(one, client, played, before if one.in_turn else None)
            )
            tasks.append(before)
        _, late = await asyncio.wait(tasks, timeout=scene.horizon)
        if late:
            played.broken_off = (
                f"{len(late)} of {len(tasks)} calls had not ended after {scene.horizon:g} s"
            )
        for task in (*late, events):
            task.cancel()
        await asyncio.wait([*tasks, events], timeout=_GRACE)
        if not late:
            await asyncio.sleep(_SETTLED * settings.scale)
            played.busy = sum(sandbox.ledger.in_flight for sandbox in sandboxes)
            if sum(sandbox.server.open_connections for sandbox in sandboxes) > _FEW:
                gc.collect()  # sockets that only wait for the collector are not kept
                await asyncio.sleep(_SETTLED * settings.scale)
            played.connections_left = sum(sandbox.server.open_connections for sandbox in sandboxes)
        released = {one.ask.instance or one.ask.call for one in scene.calls if one.ask.last}
        played.instances_left = tuple(sorted(_held(client.inside(), released)))
        for call in played.calls:
            if (
                call.told is not None
                and call.returned is not None
                and dict(call.told.fields) != dict(call.returned)
            ):
                call.later = copy.deepcopy(dict(call.returned))
        try:
            await asyncio.wait_for(client.end(), grace)
        except Exception as error:
            played.raised_at_end = f"end: {type(error).__name__}: {error}"
        played.ended = loop.time()


async def _events(
    events: tuple[SandboxEvent, ...],
    sandboxes: list[TrialSandbox],
    began: float,
    jump: Callable[[float], None],
) -> None:
    for event in sorted(events, key=lambda event: event.at):
        await asyncio.sleep(began + event.at - asyncio.get_running_loop().time())
        if event.kind == "clock_jump":
            jump(event.seconds)
        else:
            getattr(sandboxes[event.sandbox], event.kind)()


async def _make(
    planned: TrialCall, client: TrialClient, played: PlayedScene, before: asyncio.Task[None] | None
) -> None:
    loop = asyncio.get_running_loop()
    if before is not None:
        await asyncio.wait([before])
        await asyncio.sleep(_PAUSE)
    if (wait := played.began + planned.at - loop.time()) > 0:
        await asyncio.sleep(wait)
    call = PlayedCall(planned.ask, loop.time())
    played.calls.append(call)
    made = asyncio.ensure_future(client.call(planned.ask))
    try:
        if planned.cancel_after is not None:
            await asyncio.wait([made], timeout=planned.cancel_after)
            for _ in range(planned.cancel_steps):
                await asyncio.sleep(0)
            call.cancelled = not made.done()
            made.cancel()
        await asyncio.wait([made])
    except asyncio.CancelledError:  # the scene is broken off
        made.cancel()
        await asyncio.wait([made], timeout=_GRACE)
        raise
    with suppress(asyncio.CancelledError):
        try:
            told = made.result()
        except WorldError:
            raise
        except Exception as error:
            told = Told(raised=f"{type(error).__name__}: {error}")
        call.returned = told.fields
        call.told = Told(
            told.text, copy.deepcopy(dict(told.fields)), told.reward, told.raised, told.altered
        )
    call.ended_at = loop.time()


def _held(inside: Any, names: set[str], depth: int = 0, seen: set[int] | None = None) -> set[str]:
    """Return which of the names are found in an object: as keys, elements or values of its
    attributes."""
    seen = set() if seen is None else seen
    if isinstance(inside, str):
        return {inside} & names
    if (
        depth > _DEEPEST
        or id(inside) in seen
        or isinstance(inside, int | float | bytes | type | types.ModuleType)
    ):
        return set()
    seen.add(id(inside))
    parts: list[Any] = []
    if isinstance(inside, dict):
        parts = [*inside.keys(), *inside.values()]
    elif isinstance(inside, list | tuple | set | frozenset):
        parts = list(inside)
    elif hasattr(inside, "__dict__") and not isinstance(
        inside, asyncio.AbstractEventLoop | asyncio.Future
    ):
        parts = list(vars(inside).values())
    return {name for part in parts for name in _held(part, names, depth + 1, seen)}


@contextmanager
def jumping(
    wall: Callable[[], float], **others: Callable[[], float]
) -> Iterator[Callable[[float], None]]:
    """Replace the wall clock, and other clocks of ``time``; yield a function that makes the wall
    clock jump."""
    jumped = 0.0

    def jump(seconds: float) -> None:
        nonlocal jumped
        jumped += seconds

    with replaced(time, time=lambda: wall() + jumped, **others):
        yield jump


@contextmanager
def far_from_greenwich() -> Iterator[None]:
    """Set the local time so far to the east that a date of HTTP, which is in GMT, is over if it
    is read as local."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "East-14"
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
        time.tzset()


@contextmanager
def captured(played: PlayedScene) -> Iterator[None]:
    """Keep what is printed and logged meanwhile, down to DEBUG, but for the fake's own log."""
    printed, lines = io.StringIO(), list[str]()

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if not record.name.startswith("sfusion.fakes"):
                lines.append(self.format(record))

    root, handler = logging.getLogger(), Keeping(logging.DEBUG)
    before, handlers = root.level, root.handlers[:]
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG)
    try:
        with redirect_stdout(printed), redirect_stderr(printed):
            yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(before)
        played.printed += printed.getvalue()
        played.logged += "\n".join(lines)
