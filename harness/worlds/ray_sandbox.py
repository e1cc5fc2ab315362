"""Where the fake sandboxes of a run live: in the driver's process, or in a process of their own on a node."""

from __future__ import annotations

from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.worlds.recorder import Recorder
from sfusion.harness.worlds.wire import Wire, WireRecorder

PROCESS = "sandboxes"
"""What a process of their own is called on the wire."""


class Sandboxes:
    """The fakes of a scenario, in this event loop."""

    def __init__(self, scenario: Scenario, recorder: Recorder, host: str = "127.0.0.1") -> None:
        part = scenario.sandbox
        self._recorder = recorder
        self._all = [
            FakeSandbox(
                executor=part.executor,
                profile=part.profile,
                faults=part.faults,
                model=part.model,
                seed=scenario.seed,
                host=host,
                journal=self._listener(f"sandbox-{number}" if part.instances > 1 else None),
            )
            for number in range(1, part.instances + 1)
        ]

    async def start(self) -> list[str]:
        """Listen; gives the addresses."""
        for number, sandbox in enumerate(self._all, 1):
            await sandbox.start()
            self._recorder.call_it(sandbox.url.removeprefix("http://"), f"sandbox-{number}")
        return [sandbox.url for sandbox in self._all]

    async def do(self, kind: str, target: str, seconds: float | None, ping: Any) -> None:
        """Crash, restart or wedge them, or one of them."""
        chosen = self._all if target == "sandbox" else [self._all[int(target.removeprefix("sandbox-")) - 1]]
        for sandbox in chosen:
            if kind == "crash":
                sandbox.crash(restart_after=seconds)
            elif kind == "wedge":
                sandbox.wedge(ping=ping, seconds=seconds)
            else:
                sandbox.restart()

    async def stop(self) -> None:
        """End them."""
        for sandbox in self._all:
            await sandbox.stop(grace=0.0)

    def _listener(self, name: str | None) -> Any:
        if name is None:
            return self._recorder.server
        return lambda event: self._recorder.server({**event, "sandbox": name})


class _SandboxProcess(Sandboxes):
    def __init__(self, scenario: Scenario, wire: Wire, host: str | None) -> None:
        self._wired = WireRecorder(wire, PROCESS)
        super().__init__(scenario, self._wired, host or ray.util.get_node_ip_address())

    async def stop(self) -> None:
        await super().stop()
        self._wired.close()


_actor_class: Any = ray.remote(num_cpus=0)(_SandboxProcess)


class RemoteSandboxes:
    """The same on a node; ``host`` None listens where other machines reach it."""

    def __init__(self, scenario: Scenario, wire: Wire, node: str, host: str | None) -> None:
        self._actor = _actor_class.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(
            scenario, wire, host
        )

    async def start(self) -> list[str]:
        """Listen; gives the addresses."""
        urls: list[str] = await self._actor.start.remote()
        return urls

    async def do(self, kind: str, target: str, seconds: float | None, ping: Any) -> None:
        """Crash, restart or wedge them, or one of them."""
        await self._actor.do.remote(kind, target, seconds, ping)

    async def stop(self) -> None:
        """End them and their process."""
        try:
            await self._actor.stop.remote()
        except RayActorError:
            pass  # it never came up, or died: there is nothing to end
        finally:
            ray.kill(self._actor)
