"""Fake sandboxes in a process of their own on a node of a Ray cluster."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayActorError

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.ray_worker import on_node
from sfusion.harness.lab.worlds.remote_journal import JournalAddress, RemoteRecorder
from sfusion.harness.lab.worlds.sandboxes import FakeSandboxes

PROCESS = "sandboxes"
"""The name of the process in the journal."""


class _SandboxProcess(FakeSandboxes):
    def __init__(self, scenario: Scenario, journal: JournalAddress, host: str | None) -> None:
        self._remote_recorder = RemoteRecorder(journal, PROCESS)
        super().__init__(scenario, self._remote_recorder, host or ray.util.get_node_ip_address())

    async def settle(self) -> None:
        # This runs in the loop that serves: what has been sent is recorded, if not yet, then in this turn.
        await asyncio.sleep(0)

    async def stop(self) -> None:
        await super().stop()
        self._remote_recorder.close()


_actor_class: Any = ray.remote(num_cpus=0)(_SandboxProcess)


class RemoteSandboxes:
    """The driver's handle of that process; with ``host`` None it listens where other machines can reach it."""

    def __init__(self, scenario: Scenario, journal: JournalAddress, node: str, host: str | None) -> None:
        self._actor = _actor_class.options(scheduling_strategy=on_node(node)).remote(scenario, journal, host)

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
