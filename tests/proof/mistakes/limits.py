"""Mistakes with the limit: permits that are lost, invented, held too long or given to the wrong
one."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any, ClassVar

import aiohttp

from tests.proof.mistake import UNFINISHED, mistake
from tests.reference_tool import DEFAULTS, GoodTool, PeerRequest, PeerResult, Shared


@mistake("tool_never_raises", "limiter-switched-off", also=("outcomes", "throughput_at_least"))
class NeedsItsLimiter(GoodTool):
    """Without the limiter, every call fails on the limiter that was never made (verl, a)."""

    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        gate: Any = shared.gate if self.config["enable_global_rate_limit"] else None
        async with gate:
            yield


@mistake("no_stall", "last-permit-of-the-dead", also=(*UNFINISHED, "recovers_within"))
class PermitsOfTheDeadAreLost(GoodTool):
    """No finally: a permit that a killed worker or a cancelled call held never comes back (verl,
    c)."""

    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        await shared.gate.acquire()
        yield
        shared.gate.release()


@mistake("outcomes", "first-worker-leaves")
class LimiterDiesWithItsOwner(GoodTool):
    """The limiter dies with the worker that made it, and the calls of all others fail (verl, d)."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        shared: Any = self.shared()
        owner = shared.__dict__.setdefault("owner", self)
        if owner is None:
            return PeerResult("sandbox_error", "the actor died because its owner has died")
        try:
            return await super().attempt(request, failed)
        except asyncio.CancelledError:
            shared.owner = None if owner is self else owner
            raise


@mistake("in_flight_within_limit", "single-node-tight-limit[rate_limit=3]")
class KeepsTheFirstLimit(GoodTool):
    """The limit is the one that was there first, whatever the config asks for (verl, e)."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__({**config, "rate_limit": DEFAULTS["rate_limit"]}, tool_schema)


@mistake("in_flight_within_limit", "cancelled-while-queued")
class ReturnsPermitsItNeverHad(GoodTool):
    """A call that is cancelled while it waits releases a permit that it never had (verl, f)."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        gate = self.shared().gate
        waiting = gate.locked()
        try:
            return await super().attempt(request, failed)
        except asyncio.CancelledError:
            if waiting:
                gate.release()
            raise


@mistake("in_flight_within_limit", "two-limiters")
class LimiterOfItsOwn(GoodTool):
    """Two jobs do not see each other's limiter, and each gets the whole limit (verl, h)."""

    def shared(self) -> Shared:
        if self._mine is None:
            self._mine = Shared(self.config)
        return self._mine


@mistake("every_call_ends_once", "cancelled-while-queued", also=("no_stall", "outcomes"))
class DeadWaiterTakesThePermit(GoodTool):
    """A caller that has gone stays in the queue, takes the next permit and keeps it (verl, k)."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        gate = self.shared().gate
        turn = asyncio.ensure_future(gate.acquire())
        await asyncio.shield(turn)
        gate.release()
        return await super().attempt(request, failed)


@mistake("in_flight_within_limit", "single-node")
class SemaphorePerCall(GoodTool):
    """Each call makes a semaphore of its own, which limits nothing."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        self.shared().gate = asyncio.Semaphore(self.config["rate_limit"])
        return await super().attempt(request, failed)


@mistake("recovers_within", "crash-and-restart", also=(*UNFINISHED, "no_stall"))
class PermitLostOnError(GoodTool):
    """An early return after an error forgets to release the permit."""

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        shared = self.shared()
        await shared.gate.acquire()
        result = await self.send(shared.session(), self.urls[0], request)
        if result.outcome in ("unreachable", "transport_timeout"):
            return result
        shared.gate.release()
        return result


@mistake("no_permit_while_backing_off", "patient-429", also=("retries_spread",))
class HoldsPermitsWhileBackingOff(GoodTool):
    """A call that waits before its next attempt keeps its permit (verl, g)."""

    async def run(self, request: PeerRequest) -> PeerResult:
        async with super().permit(self.shared()):
            return await super().run(request)

    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        yield


@mistake("throughput_at_least", "one-after-the-other")
class OneAtATime(GoodTool):
    """A lock around the whole call: one runs after the other."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__({**config, "rate_limit": 1}, tool_schema)


@mistake("requests_paced", "paced-requests", also=("throughput_at_least",))
class IgnoresThePace(GoodTool):
    """Requests per second are not limited, only requests in flight."""

    async def pace(self, shared: Shared) -> None:
        return


@mistake("throughput_at_least", "scaled-out-unevenly")
class RoundRobin(GoodTool):
    """Sandboxes take turns, whatever they have to do already."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.turns = itertools.count()

    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        return self.urls[next(self.turns) % len(self.urls)]


@mistake("outcomes", "one-sick-instance", also=("attempts_per_call",))
class SticksToASickSandbox(GoodTool):
    """A call is sent to the same sandbox again and again, also if another one is healthy."""

    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        return super().choose(shared, Counter({url: -times for url, times in failed.items()}))


@mistake("in_flight_within_limit", "dripping-answers")
class PermitOnlyForTheHead(GoodTool):
    """The permit is given back with the status line, while the body is still on its way."""

    _releases: ClassVar[dict[Any, ExitStack]] = {}

    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        release = ExitStack()
        await shared.gate.acquire()
        release.callback(shared.gate.release)
        self._releases[asyncio.current_task()] = release
        with release:
            yield

    async def read_body(self, answer: aiohttp.ClientResponse) -> bytes:
        self._releases.pop(asyncio.current_task()).close()
        return await super().read_body(answer)


@mistake("outcomes", "one-sick-instance", also=("attempts_per_call", "no_duplicate_execution"))
class FirstSandboxOnly(GoodTool):
    """Several sandboxes are given, and all requests go to the first."""

    def choose(self, shared: Shared, failed: Counter[str]) -> str:
        return self.urls[0]
