"""The worker processes of a run as the driver knows them: who lives, what they have under way, what was lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion.harness.journal import Event
from sfusion.harness.worlds.ray_driver import SecondDriver
from sfusion.harness.worlds.ray_worker import Orders, Worker, signal_process
from sfusion.harness.worlds.recorder import Recorder

LEAVE_SECONDS = 15.0
"""How long workers have to go by themselves before they are killed."""


class Member:
    """One worker process."""

    def __init__(self, name: str, node: str, actor: Any) -> None:
        self.name = name
        self.node = node
        self.actor = actor
        self.pid = 0
        self.doomed = False
        """Somebody is about to kill it."""
        self.under_way: dict[str, Event] = {}
        """Calls that it was given and has not answered, with what the journal would say of each."""
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


class Crew:
    """All of them."""

    def __init__(self, recorder: Recorder, *, one_machine: bool) -> None:
        self._recorder = recorder
        self._one_machine = one_machine
        self._all: dict[str, Member] = {}
        self._open: dict[str, str] = {}
        self._rollouts: dict[str, str] = {}
        self._seen: set[str] = set()
        self.leaving = False

    async def hire(self, places: dict[str, str], orders: Orders, driver: SecondDriver | None = None) -> None:
        """Start a process for every name, on the node beside it; with a ``driver`` they are that one's."""
        if driver is not None:
            actors = await driver.create(places, orders)
        else:
            actors = {name: create(name, node, orders) for name, node in places.items()}
        self._all = {name: Member(name, places[name], actor) for name, actor in actors.items()}
        for member in self._all.values():
            member.pid = await member.actor.begin.remote()

    def dismiss(self) -> None:
        """End every process."""
        self.leaving = True
        for member in self._all.values():
            ray.kill(member.actor)

    @property
    def members(self) -> list[Member]:
        """All, dead or alive, in order."""
        return list(self._all.values())

    @property
    def living(self) -> list[Member]:
        """Those who live."""
        return [member for member in self._all.values() if not member.gone.is_set()]

    def named(self, names: list[str]) -> list[Member]:
        """Those of these who live."""
        return [member for member in self.living if member.name in names]

    # -- what is told about them --

    def hear(self, event: Event) -> None:
        """An event of one of them."""
        if event["source"] != "world":
            return
        if event["event"] == "rollout_started":
            self._rollouts[event["rollout"]] = event["worker"]
        elif event["event"] == "rollout_ended":
            self._rollouts.pop(event["rollout"], None)
        elif "call" not in event:
            return
        elif event["event"] == "called":
            self._seen.add(event["call"])
            self._open[event["call"]] = event["worker"]
        else:
            self._open.pop(event["call"], None)

    def went(self, name: str) -> None:
        """A connection ended, and with it all that this process could tell."""
        member = self._all.get(name)
        if member is None or member.gone.is_set():
            return
        if not self.leaving:
            self._died(member)
        member.gone.set()

    def _died(self, member: Member) -> None:
        note = self._recorder.note
        if not member.doomed:
            note("world", "log", level="error", text=f"{member.name} died although nobody killed it")
        note("world", "worker_died", worker=member.name)
        for call in _take(self._open, member.name):
            note("world", "lost", call=call, worker=member.name)
        for rollout in _take(self._rollouts, member.name):
            note("world", "rollout_lost", rollout=rollout, worker=member.name)
        for call, called in member.under_way.items():
            if call not in self._seen:
                self.never_made(called)

    def never_made(self, called: Event) -> None:
        """A call that was given to a worker which died before it could make it: lost like the others."""
        self._recorder.note("world", "called", **called)
        self._recorder.note("world", "lost", call=called["call"], worker=called["worker"])

    # -- what is done to them --

    async def tell(self, method: str, *args: Any) -> None:
        """Say something to all who live, and wait until they have heard it."""
        await at_once([member.ask(getattr(member.actor, method).remote(*args)) for member in self.living])

    async def signal(self, member: Member, number: int) -> None:
        """Send a signal to a process."""
        if member.gone.is_set():
            return
        if self._one_machine:
            os.kill(member.pid, number)
        else:
            await signal_process.options(scheduling_strategy=on(member.node)).remote(member.pid, number)

    async def leave(self) -> None:
        """Let them go, and wait until all that they told has arrived."""
        self.leaving = True
        living = self.living
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.tell("leave")
                for member in living:
                    await member.gone.wait()
        except TimeoutError:
            pass  # one that cannot go is killed with the rest


def _take(under_way: dict[str, str], worker: str) -> list[str]:
    """What that worker had under way, which nobody has now."""
    found = [name for name, whose in under_way.items() if whose == worker]
    for name in found:
        del under_way[name]
    return found


def create(name: str, node: str, orders: Orders, *, named: bool = False) -> Any:
    """Start a worker; with its name, where others can find it by that."""
    options = {"name": name} if named else {}
    return Worker.options(scheduling_strategy=on(node), **options).remote(name, orders)


def on(node: str) -> Any:
    """Ray's way to say: on this node and no other."""
    return NodeAffinitySchedulingStrategy(node, soft=False)


async def at_once(work: list[Coroutine[Any, Any, Any]]) -> None:
    """Do all of it at the same time; the first error ends it."""
    async with asyncio.TaskGroup() as group:
        for one in work:
            group.create_task(one)
