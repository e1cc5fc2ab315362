"""The sandboxes of a run, in the event loop of the world: fakes, or real ones behind proxies that
inject the faults."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from sfusion_tools.hosts import is_loopback

from ....fakes.proxy import FaultProxy
from ....fakes.sandbox import FakeSandbox
from ...real.targets import RealSandbox
from ...real.targets.proxying import proxy_in_front_of
from ..scenarios.model import Scenario
from .recorder import Recorder
from .schedules import running_as


class FakeSandboxes:
    """The sandboxes of a run: fakes in this event loop; subclasses have them elsewhere, or real
    ones behind proxies."""

    def __init__(self, scenario: Scenario, recorder: Recorder, host: str = "127.0.0.1") -> None:
        self._recorder = recorder
        names = scenario.sandbox.names
        parts = scenario.sandbox.settings
        self._headers = scenario.headers
        self._faults = [part.faults for part in parts]
        self._all: Sequence[FakeSandbox | FaultProxy] = [
            FakeSandbox(
                executor=part.executor,
                profile=part.profile,
                model=part.model,
                seed=scenario.seed,
                host=host,
                journal=recorder.server_events(name if len(names) > 1 else None),
            )
            for name, part in zip(names, parts, strict=True)
        ]

    @property
    def count(self) -> int:
        return len(self._all)

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
        places = list(range(len(self._all)))
        if target != "sandbox":
            places = [int(target.removeprefix("sandbox-")) - 1]
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
        """Return when the events of all answers that have reached a client are recorded; in this
        loop they are."""

    async def stop(self) -> None:
        """Stop all of them without waiting for requests under way."""
        for sandbox in self._all:
            await sandbox.stop(grace=0.0)


class RealSandboxes(FakeSandboxes):
    """One proxy for each instance of the scenario, in this event loop, spread over the real
    sandboxes.

    A crash really kills a sandbox that can be killed (a container). For a server that is only known
    by its address, the proxy in front of it goes down instead.
    """

    def __init__(
        self, scenario: Scenario, recorder: Recorder, real: Sequence[RealSandbox], host: str
    ) -> None:
        part = scenario.sandbox
        count = max(part.instances, len(real))
        self._recorder = recorder
        self._real = [real[number % len(real)] for number in range(count)]
        self._down: set[int] = set()
        self._returns: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        # The sandbox runs any code it is sent, so a proxy that other machines can reach asks for a
        # token.
        self._token = None if is_loopback(host) else secrets.token_urlsafe(16)
        self._headers = scenario.headers
        self._faults = [part.instance(number).faults for number in range(1, count + 1)]
        self._all = self._proxies = [
            proxy_in_front_of(
                sandbox.url,
                model=part.instance(number).model,
                seed=scenario.seed,
                host=host,
                token=self._token,
                allow_remote=self._token is not None,
                journal=recorder.server_events(f"sandbox-{number}" if count > 1 else None),
            )
            for number, sandbox in enumerate(self._real, 1)
        ]

    async def start(self) -> list[str]:
        urls = await super().start()
        for sandbox in self._real:
            self._recorder.alias(sandbox.url.removeprefix("http://"), sandbox.name)
        if self._token is None:
            return urls
        self._recorder.keep_secret(self._token, "token of the proxy")
        return [url.replace("://", f"://sfusion:{self._token}@", 1) for url in urls]

    async def stop(self) -> None:
        """Stop the proxies and bring killed sandboxes back up."""
        self._over.set()  # restarts under way are waited for: a thread cannot be cancelled
        await asyncio.gather(*self._returns, return_exceptions=True)
        await super().stop()
        for place in list(self._down):
            await self._revive(place)

    async def _crash(self, place: int, seconds: float | None) -> None:
        proxy = self._proxies[place]
        sandbox = self._real[place]
        # The port goes first: a client must see what it would see without a proxy, never an answer
        # of ours.
        proxy.crash(restart_after=None if sandbox.killable else seconds)
        if not sandbox.killable:
            return
        self._down.add(place)
        await asyncio.to_thread(sandbox.kill)
        self._recorder.note("world", "container_killed", sandbox=sandbox.name)
        if seconds is not None:
            task = asyncio.ensure_future(self._after(seconds, place))
            self._returns.add(task)
            task.add_done_callback(self._returns.discard)

    async def _after(self, seconds: float, place: int) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)
            return
        await self._restart(place)

    async def _restart(self, place: int) -> None:
        if place in self._down:
            await self._revive(place)
            self._recorder.note("world", "container_started", sandbox=self._real[place].name)
        self._proxies[place].restart()

    async def _revive(self, place: int) -> None:
        sandbox = self._real[place]
        await asyncio.to_thread(sandbox.revive)
        self._down.discard(place)
        for proxy, behind in zip(self._proxies, self._real, strict=True):
            if behind is sandbox:
                proxy.upstream = sandbox.url  # a restarted container has another port
