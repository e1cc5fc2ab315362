"""The limiter of a simulated cluster, and the links between it and the workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from sfusion_tools.errors import LimiterUnreachable
from sfusion_tools.limiter import LimiterCore, LimiterHost, LimiterSettings, Snapshot
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll

from ....fakes.faults.chance import drawer, uniform
from ..scenarios.parts import LinkPart
from .recorder import Recorder

NO_ANSWER_SECONDS = 1.0
"""How long a worker waits before it considers a message lost."""
_TICKETS_PER_LIFE = 10**9
"""Chosen: more than a limiter hands out, so that those of two lives differ."""

CoreFactory = Callable[..., LimiterCore]


class SimLimiter:
    """A limiter that can die and restart; after a restart it knows only which clients it must learn
    from."""

    def __init__(
        self, settings: LimiterSettings, recorder: Recorder, core: CoreFactory = LimiterCore
    ) -> None:
        self._settings = self._wanted = settings
        self._recorder = recorder
        self._core = core
        self._lives = 0
        self._clients: dict[str, int] = {}
        self._pending: dict[asyncio.Task[Any], None] = {}
        self.host: LimiterHost | None = None
        self.awake = asyncio.Event()
        """Not set while it is paused; messages wait for it then."""
        self.awake.set()
        self._stopped = 0.0
        """For how long it has been paused in all; its clock stands still meanwhile, as that of the
        real actor does."""

    @property
    def lease(self) -> float | None:
        return self.host.snapshot().lease if self.host is not None else None

    async def pause(self) -> None:
        """Stop for a while: nothing is received or sent."""
        if self.awake.is_set():
            self.awake.clear()
            self._stopped -= asyncio.get_running_loop().time()
            self._interrupt()

    async def resume(self) -> None:
        if not self.awake.is_set():
            self.awake.set()
            self._stopped += asyncio.get_running_loop().time()

    def _time(self) -> float:
        return (asyncio.get_running_loop().time() if self.awake.is_set() else 0.0) - self._stopped

    def start(self) -> None:
        """Start or restart it; do nothing if it is alive."""
        if self.host is not None:
            return
        first = self._lives == 0
        self._lives += 1
        core = self._core(
            self._settings,
            self._time(),
            incarnation=f"p{self._lives}",
            first_ticket=(self._lives - 1) * _TICKETS_PER_LIFE + 1,
            learn_from=self._clients,
            observer=self._observe,
        )
        self.host = LimiterHost(core, self._time)
        self._recorder.note("world", "limiter_started", life=self._lives, first=first)
        self._configure(self.host)

    async def restart(self) -> None:
        self.start()

    async def kill(self, seconds: float | None = None) -> None:
        """Die: clients that wait for an answer get an error."""
        if self.host is not None:
            self._clients = self.host.record("sim").clients
            self.host = None
            await self.resume()  # what starts next is another process
            self._recorder.note("world", "killed", target="limiter")
            self._recorder.note("world", "limiter_died", life=self._lives)
            self._interrupt()
        if seconds is not None:
            await asyncio.sleep(seconds)
            self.start()

    def _interrupt(self) -> None:
        for answer in list(self._pending):
            answer.cancel()

    async def resize(self, rate_limit: int) -> None:
        """Change the limit, also for later restarts; while it is dead, when it is back."""
        self._wanted = replace(self._settings, rate_limit=rate_limit)
        if self.host is not None:
            self._configure(self.host)

    def _configure(self, host: LimiterHost) -> None:
        if self._wanted != self._settings:
            self._settings = self._wanted
            host.configure(self._settings)

    async def snapshot(self) -> Snapshot | None:
        """Return the current state; None while it is dead."""
        return self.host.snapshot() if self.host is not None else None

    async def wait(self, poll: Poll) -> LimiterReply:
        """Wait for an update; raise LimiterUnreachable if the limiter dies first."""
        host = self.host
        while host is not None and host is self.host:
            if not self.awake.is_set():
                await self.awake.wait()
                continue
            answer = asyncio.ensure_future(host.wait(poll))
            self._pending[answer] = None
            try:
                return await asyncio.shield(answer)
            except asyncio.CancelledError:
                if not answer.cancelled():
                    answer.cancel()
                    raise
            finally:
                self._pending.pop(answer, None)
        raise LimiterUnreachable("the limiter is not there" if host is None else "the limiter died")

    def _observe(self, event: str, client: str, facts: dict[str, object]) -> None:
        self._recorder.note("limiter", event, worker=client, **facts)


class Link:
    """One worker's connection to the limiter, with delay and loss. It can be closed, cut, or die
    with the worker."""

    def __init__(self, worker: str, limiter: SimLimiter, part: LinkPart, seed: int) -> None:
        self._worker = worker
        self._limiter = limiter
        self._part = part
        self._seed = seed
        self._messages = 0
        self._dead = False
        self.is_cut = False
        """Messages are lost."""
        self.open = asyncio.Event()
        """Not set while the worker is paused; messages wait for it then."""
        self.open.set()

    def die(self) -> None:
        """Deliver nothing from now on."""
        self._dead = True
        self.open.set()

    async def exchange(self, batch: Batch) -> LimiterReply:
        """Deliver a batch and return the answer."""
        await self._travel("out")
        host = self._limiter.host
        if host is None:
            raise LimiterUnreachable("the limiter is not there")
        reply = host.exchange(batch)
        await self._travel("back")
        return reply

    async def wait(self, poll: Poll) -> LimiterReply:
        await self._travel("out")
        reply = await self._limiter.wait(poll)
        await self._travel("back")
        return reply

    def detach(self, farewell: Batch) -> None:
        """Detach the client, unless the worker is dead or cut off."""
        if not self._dead and not self.is_cut and self._limiter.host is not None:
            self._limiter.host.exchange(farewell)

    async def _travel(self, way: str) -> None:
        self._messages += 1
        keys = (self._seed, "link", self._worker, self._messages)
        delay = self._part.delay.sample(drawer(*keys))
        if delay > 0:
            await asyncio.sleep(delay)
        if not self.open.is_set():
            await self.open.wait()
        if not self._limiter.awake.is_set():
            await self._limiter.awake.wait()
        if self._dead:
            # The worker is dead, so nothing waits for this.
            await asyncio.get_running_loop().create_future()
        if self.is_cut or (self._part.loss and uniform(*keys, "loss") < self._part.loss):
            await asyncio.sleep(NO_ANSWER_SECONDS)
            raise LimiterUnreachable(f"a message was lost on its way {way}")
