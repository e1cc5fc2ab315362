"""Real sandboxes in a run, each behind a fault proxy that injects the faults of the scenario."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress

from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.recorder import Recorder
from sfusion.harness.lab.worlds.sandboxes import FakeSandboxes
from sfusion.harness.real.targets import RealSandbox
from sfusion.harness.real.targets.proxying import proxy_in_front_of
from sfusion_tools.hosts import is_loopback


class RealSandboxes(FakeSandboxes):
    """One proxy for each instance of the scenario, in this event loop, spread over the real sandboxes.

    A crash really kills a sandbox that can be killed (a container). For a server that is only known by its address,
    the proxy in front of it goes down instead.
    """

    def __init__(self, scenario: Scenario, recorder: Recorder, real: Sequence[RealSandbox], host: str) -> None:
        part = scenario.sandbox
        count = max(part.instances, len(real))
        self._recorder = recorder
        self._real = [real[number % len(real)] for number in range(count)]
        self._down: set[int] = set()
        self._returns: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()
        # The sandbox runs any code it is sent, so a proxy that other machines can reach asks for a token.
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
        for number, (proxy, sandbox) in enumerate(zip(self._proxies, self._real, strict=True), 1):
            await proxy.start()
            self._recorder.alias(proxy.url.removeprefix("http://"), f"sandbox-{number}")
            self._recorder.alias(sandbox.url.removeprefix("http://"), sandbox.name)
        if self._token is None:
            return [proxy.url for proxy in self._proxies]
        self._recorder.keep_secret(self._token, "token of the proxy")
        return [proxy.url.replace("://", f"://sfusion:{self._token}@", 1) for proxy in self._proxies]

    async def stop(self) -> None:
        """Stop the proxies and bring killed sandboxes back up."""
        self._over.set()  # restarts under way are waited for: a thread cannot be cancelled
        await asyncio.gather(*self._returns, return_exceptions=True)
        await super().stop()
        for place in list(self._down):
            await self._revive(place)

    async def _crash(self, place: int, seconds: float | None) -> None:
        proxy, sandbox = self._proxies[place], self._real[place]
        # The port goes first: a client must see what it would see without a proxy, never an answer of ours.
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
