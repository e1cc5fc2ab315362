"""The fake sandboxes of a scenario, in the event loop of the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.schedules import running_as


class FakeSandboxes:
    """The sandboxes of a run: fakes in this event loop; subclasses have them elsewhere, or real ones behind proxies."""

    def __init__(self, scenario: Scenario, recorder: Recorder, host: str = "127.0.0.1") -> None:
        self._recorder = recorder
        names = scenario.sandbox.names
        self._headers = scenario.headers
        self._faults = [scenario.sandbox.instance(number).faults for number in range(1, len(names) + 1)]
        self._all: Sequence[FakeSandbox | FaultProxy] = [
            FakeSandbox(
                executor=part.executor,
                profile=part.profile,
                model=part.model,
                seed=scenario.seed,
                host=host,
                journal=recorder.server_events(name if len(names) > 1 else None),
            )
            for number, name in enumerate(names, 1)
            for part in [scenario.sandbox.instance(number)]
        ]

    async def start(self) -> list[str]:
        """Start listening, without faults, and return the addresses."""
        for number, sandbox in enumerate(self._all, 1):
            with running_as(f"sandbox-{number}"):
                await sandbox.start()
            self._recorder.alias(sandbox.url.removeprefix("http://"), f"sandbox-{number}")
        return [sandbox.url for sandbox in self._all]

    async def begin(self) -> None:
        """Inject the scenario's faults from now on; their clocks start here."""
        for sandbox, faults in zip(self._all, self._faults, strict=True):
            sandbox.server.expected_headers = self._headers
            sandbox.set_faults(faults)

    async def do(self, kind: str, target: str, seconds: float | None, ping: Any) -> None:
        """Crash, restart or wedge all of them (target ``sandbox``) or one (``sandbox-2``)."""
        places = range(len(self._all)) if target == "sandbox" else [int(target.removeprefix("sandbox-")) - 1]
        for place in places:
            with running_as(f"sandbox-{place + 1}"):
                if kind == "crash":
                    await self._crash(place, seconds)
                elif kind == "wedge":
                    self._all[place].wedge(ping=ping, seconds=seconds)
                else:
                    await self._restart(place)

    async def _crash(self, place: int, seconds: float | None) -> None:
        self._all[place].crash(restart_after=seconds)

    async def _restart(self, place: int) -> None:
        self._all[place].restart()

    async def settle(self) -> None:
        """Return when the events of all answers that have reached a client are recorded; in this loop they are."""

    async def stop(self) -> None:
        """Stop all of them without waiting for requests under way."""
        for sandbox in self._all:
            await sandbox.stop(grace=0.0)
