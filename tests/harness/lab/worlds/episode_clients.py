"""Clients of episodes, right and wrong, over the wires of our own client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import aiohttp

from sfusion.harness.lab.episodes import EpisodeTask
from sfusion.harness.lab.episodes.own_client import WIRES
from sfusion.harness.lab.episodes.wire import CreateRefused, RequestLost, SandboxLost, Wire

Client = Callable[[EpisodeTask], Awaitable[Any]]
OK = {"score": 1.0, "outcome": "ok"}
LOST = {"score": None, "outcome": "infrastructure"}


def wire_of(task: EpisodeTask) -> Wire:
    """Return the wire of the service that a task names."""
    return WIRES[task.face](task)


async def take_all(wire: Wire, sandbox: str, task: EpisodeTask) -> list[str]:
    """Take all steps; return what was answered."""
    answers = []
    for step in task.steps:
        if step.kind == "exec":
            answers.append(await wire.execute(sandbox, step.command))
        elif step.kind == "write":
            await wire.write(sandbox, step.path, step.content)
            answers.append("")
        else:
            answers.append(await wire.read(sandbox, step.path))
    return answers


async def plain(task: EpisodeTask) -> Any:
    """Create, take the steps, delete: nothing else."""
    async with wire_of(task) as wire:
        try:
            sandbox = await wire.create()
            await wire.until_ready(sandbox)
        except (RequestLost, SandboxLost):
            return LOST
        try:
            return {**OK, "answers": await take_all(wire, sandbox, task)}
        except SandboxLost:
            return LOST
        finally:
            await wire.delete(sandbox)


async def never_deletes(task: EpisodeTask) -> Any:
    async with wire_of(task) as wire:
        sandbox = await wire.create()
        await wire.until_ready(sandbox)
        return {**OK, "answers": await take_all(wire, sandbox, task)}


async def keeps_for_ever(task: EpisodeTask) -> Any:
    """The sandbox is told not to stop when nobody uses it."""
    async with wire_of(task) as wire:
        api = f"{task.url}/api/sandbox"
        asked = {"labels": task.labels, "autoStopInterval": 0}
        made = await wire.control("POST", api, json=asked)
        await wire.until_ready(made["id"])
        try:
            return {**OK, "answers": await take_all(wire, made["id"], task)}
        except SandboxLost:
            return LOST
        finally:
            await wire.delete(made["id"])


async def creates_again(task: EpisodeTask) -> Any:
    """A create that failed is made again, blindly."""
    async with wire_of(task) as wire:
        while True:
            try:
                sandbox = await wire.create()
                break
            except RequestLost:
                await asyncio.sleep(0.3)
        await wire.until_ready(sandbox)
        try:
            return {**OK, "answers": await take_all(wire, sandbox, task)}
        finally:
            await wire.delete(sandbox)


async def scores_losses(task: EpisodeTask) -> Any:
    """Whatever fails is scored 0."""
    found = await plain(task)
    return found if found["score"] is not None else {"score": 0.0, "outcome": "ok"}


async def replaces_the_dead(task: EpisodeTask) -> Any:
    """A dead sandbox is replaced by a blank one, and the episode goes on."""
    async with wire_of(task) as wire:
        sandbox = await wire.create()
        await wire.until_ready(sandbox)
        answers = []
        for step in task.steps:
            try:
                answers.append(await wire.execute(sandbox, step.command))
            except SandboxLost:
                sandbox = await wire.create()
                await wire.until_ready(sandbox)
                answers.append(await wire.execute(sandbox, step.command))
        await wire.delete(sandbox)
        return {**OK, "answers": answers}


async def runs_twice(task: EpisodeTask) -> Any:
    """A command without an answer is sent again to the same sandbox."""
    async with wire_of(task) as wire:
        sandbox = await wire.create()
        await wire.until_ready(sandbox)
        answers = []
        for step in task.steps:
            try:
                answers.append(await wire.execute(sandbox, step.command))
            except SandboxLost:
                answers.append(await wire.execute(sandbox, step.command))
        await wire.delete(sandbox)
        return {**OK, "answers": answers}


class _Shared:
    """What clients share that mix up their answers, or use one sandbox for all."""

    last = ""
    sandbox = ""


def shifted() -> Client:
    """A client whose answers are those of the step before."""
    shared = _Shared()

    async def play(task: EpisodeTask) -> Any:
        found = await plain(task)
        answers = [shared.last, *found["answers"][:-1]]
        shared.last = found["answers"][-1]
        return {**found, "answers": answers}

    return play


def pooled() -> Client:
    """A client that uses one sandbox for all episodes, and never empties it."""
    shared = _Shared()

    async def play(task: EpisodeTask) -> Any:
        async with wire_of(task) as wire:
            if not shared.sandbox:
                shared.sandbox = await wire.create()
                await wire.until_ready(shared.sandbox)
            answers = []
            for step in task.steps:
                if step.kind == "exec":
                    answers.append(await wire.execute(shared.sandbox, step.command))
                elif step.kind == "read":
                    answers.append(await wire.read(shared.sandbox, step.path))
                elif not shared.last:
                    await wire.write(shared.sandbox, step.path, step.content)
            shared.last = task.id
            return {**OK, "answers": answers}

    return play


async def hammers(task: EpisodeTask) -> Any:
    """A create that is refused is made again at once."""
    async with wire_of(task) as wire:
        while True:
            try:
                sandbox = await wire.create()
                break
            except CreateRefused:
                await asyncio.sleep(0.05)
        await wire.until_ready(sandbox)
        answers = await take_all(wire, sandbox, task)
        await wire.delete(sandbox)
        return {**OK, "answers": answers}


async def deletes_once(task: EpisodeTask) -> Any:
    """A delete that fails is given up."""
    async with wire_of(task) as wire:
        sandbox = await wire.create()
        await wire.until_ready(sandbox)
        answers = await take_all(wire, sandbox, task)
        with suppress(RequestLost):
            await wire.delete(sandbox)
        return {**OK, "answers": answers}


async def dawdles(task: EpisodeTask) -> Any:
    """A sandbox is used after its time."""
    async with wire_of(task) as wire:
        sandbox = await wire.create()
        await wire.until_ready(sandbox)
        await asyncio.sleep(5.0)
        try:
            return {**OK, "answers": await take_all(wire, sandbox, task)}
        except SandboxLost:
            return LOST


async def keeps_the_socket(task: EpisodeTask) -> Any:
    """OpenEnv: a step that is not answered in time is given up, and the next one is sent."""
    url = f"{task.url.replace('http', 'ws', 1)}/ws"
    answers = []
    async with aiohttp.ClientSession() as session, session.ws_connect(url) as socket:
        await socket.send_json({"type": "reset", "data": {"episode_id": task.id}})
        await socket.receive()
        for step in task.steps:
            await socket.send_json({"type": "step", "data": {"code": step.code}})
            try:
                message = await socket.receive(timeout=60)
            except TimeoutError:
                answers.append("")
                continue
            answers.append(json.loads(message.data)["data"]["observation"]["stdout"])
    return {**OK, "answers": answers}
