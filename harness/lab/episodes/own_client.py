"""The client that plays episodes if no other is named: it speaks each service's wire with nothing
but aiohttp, and does what a right client does.

- A create whose answer is lost is adopted if the sandbox is found by its label, else made again.
- A create that is refused waits as it is asked, and never in step with the others.
- A dead sandbox ends the episode: it is never replaced, and nothing is scored.
- A delete is sent again until it has succeeded, also by an episode that is cancelled.
- A sandbox whose client is killed ends by itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ....fakes.faults.chance import uniform
from .daytona_wire import DaytonaWire
from .e2b_wire import E2BWire
from .openenv_wire import OpenEnvWire
from .task import EpisodeStep, EpisodeTask
from .wire import CreateRefused, RequestLost, SandboxLost, Wire

WIRES: dict[str, type[Wire]] = {
    "daytona": DaytonaWire,
    "openenv": OpenEnvWire,
    "e2b": E2BWire,
}
"""How each service is spoken to."""
_CREATES = 8
"""Creates of an episode before it gives up; chosen: a queue that refuses for half a minute."""
_DELETES = 6
"""Tries to delete a sandbox; chosen."""
_PAUSE = 0.25
"""Seconds before the second try, doubled with each; chosen."""
_LONGEST_PAUSE = 8.0
"""Seconds; chosen."""


class Lost(Exception):
    """The service failed, so nothing is known about the program."""


async def episode(task: EpisodeTask) -> dict[str, Any]:
    """Play one episode, and return its score only if every step was answered."""
    answers: list[str] = []
    async with WIRES[task.face](task) as wire:
        try:
            sandbox = await _create(wire, task)
            try:
                for step in task.steps:
                    await asyncio.sleep(step.think)
                    answers.append(await _take(wire, sandbox, step))
            finally:
                await _finish(_delete(wire, task, sandbox))
        except (Lost, SandboxLost, RequestLost) as error:
            return {"score": None, "outcome": "infrastructure", "why": str(error)}
    return {"score": 1.0, "outcome": "ok", "answers": answers}


async def _take(wire: Wire, sandbox: str, step: EpisodeStep) -> str:
    """Take a step; return what the sandbox answered."""
    if step.kind == "exec":
        command = step.code if wire.speaks_python else step.command
        return await wire.execute(sandbox, command)
    if step.kind == "write":
        await wire.write(sandbox, step.path, step.content)
        return ""
    return await wire.read(sandbox, step.path)


async def _create(wire: Wire, task: EpisodeTask) -> str:
    """Create a sandbox and wait until it runs; what is given up on the way is deleted."""
    creating = asyncio.ensure_future(_created(wire, task))
    try:
        sandbox = await asyncio.shield(creating)
    except asyncio.CancelledError:
        # Its answer is waited for: without the id nobody could delete the sandbox.
        await _finish(_give_up(wire, task, creating))
        raise
    try:
        await wire.until_ready(sandbox)
    except BaseException:
        await _finish(_delete(wire, task, sandbox))
        raise
    return sandbox


async def _give_up(wire: Wire, task: EpisodeTask, creating: asyncio.Future[str]) -> None:
    try:
        sandbox = await creating
    except (Lost, RequestLost):
        return
    await _delete(wire, task, sandbox)


async def _created(wire: Wire, task: EpisodeTask) -> str:
    """Return the id of a new sandbox, or of the one whose creation nobody answered for."""
    for number in range(1, _CREATES + 1):
        try:
            return await wire.create()
        except CreateRefused as error:
            await asyncio.sleep((error.retry_after or 0.0) + _pause(task, "create", number))
        except RequestLost:
            await asyncio.sleep(_pause(task, "create", number))
            found = await _found(wire)
            if found is not None:
                return found
    raise Lost(f"no sandbox after {_CREATES} creates")


async def _found(wire: Wire) -> str | None:
    """Return the sandbox with the label of this episode, if there is one."""
    try:
        return await wire.find()
    except RequestLost:
        return None


async def _delete(wire: Wire, task: EpisodeTask, sandbox: str) -> None:
    for number in range(1, _DELETES + 1):
        try:
            await wire.delete(sandbox)
            return
        except RequestLost:
            await asyncio.sleep(_pause(task, "delete", number))


async def _finish(work: Any) -> None:
    """Let work end also if this task is cancelled meanwhile."""
    running = asyncio.ensure_future(work)
    cancelled = False
    while not running.done():
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            if running.cancelled():
                raise
            cancelled = True
    running.result()
    if cancelled:
        raise asyncio.CancelledError


def _pause(task: EpisodeTask, why: str, number: int) -> float:
    """Return a pause that grows, and that no other episode has."""
    longest = min(_LONGEST_PAUSE, _PAUSE * 2.0 ** (number - 1))
    return longest * (0.5 + uniform(0, why, task.id, number) / 2)
