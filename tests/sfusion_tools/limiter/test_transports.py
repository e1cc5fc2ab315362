"""Clients that stall, and messages that are late, lost or fail."""

from __future__ import annotations

import asyncio

import pytest

from sfusion.harness.lab.worlds.virtual_time import VirtualTimeLoop, run_virtually
from sfusion_tools.errors import LimiterError, LimiterUnreachable, PermitTimeout
from sfusion_tools.limiter import Limiter, LimiterHost, LimiterSettings, LocalTransport, local_host
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.limiter.hosts import host_on_loop_time


def test_the_permit_of_a_stalled_client_goes_to_others_and_its_release_is_fenced() -> None:
    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=1, lease=10)
        stalled = Limiter(Stalling(host))
        permit = await take(stalled)
        assert isinstance(stalled._transport, Stalling)
        stalled._transport.stall = asyncio.Event()
        other = await take(Limiter(LocalTransport(host)))
        assert asyncio.get_running_loop().time() == pytest.approx(10, abs=1)
        stalled._transport.stall.set()
        await give(permit)
        await stalled.flush()
        assert host.snapshot().in_use == 1, "the late release does not affect the new holder"
        await give(other)

    run_virtually(scenario())


def test_a_grant_that_reaches_a_stalled_client_too_late_is_not_used() -> None:
    """The process is stalled when it is granted a permit; when it resumes, the permit belongs to
    another client."""

    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=1, lease=10)
        first = await take(Limiter(LocalTransport(host)))
        transport = StalledOnTheWayBack(host)
        stalled = Limiter(transport)
        late = asyncio.ensure_future(take(stalled))
        await asyncio.sleep(1)
        transport.stall = asyncio.Event()
        await give(first)
        other = await take(Limiter(LocalTransport(host)))
        assert asyncio.get_running_loop().time() > 10
        transport.stall.set()
        await asyncio.sleep(5)
        assert not late.done(), "the limit is 1, and the other client has the permit"
        await give(other)
        await give(await late)
        await stalled.flush()
        assert host.snapshot().in_use == 0

    run_virtually(scenario())


def test_a_caller_that_is_stalled_after_its_grant_does_not_use_it() -> None:
    """The client has handed the grant to its caller, which runs only when the lease is over."""

    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=1, lease=10)
        first = await take(Limiter(LocalTransport(host)))
        transport = StalledAfterTheReply(host)
        stalled = Limiter(transport)
        impatient, patient = (
            asyncio.ensure_future(take(stalled, timeout)) for timeout in (12, None)
        )
        await asyncio.sleep(1)
        other = asyncio.ensure_future(take(Limiter(LocalTransport(host))))
        await asyncio.sleep(1)
        transport.stalls = True
        await give(first)
        with pytest.raises(PermitTimeout):
            await impatient
        assert asyncio.get_running_loop().time() == pytest.approx(13)
        async with asyncio.timeout(100):
            permits = [await patient]
            assert not other.done(), "the limit is 1"
            await give(permits[0])
            permits.append(await other)
        assert len({permit.id for permit in permits}) == 2
        assert host.snapshot().in_use == 1

    run_virtually(scenario())


class StalledAfterTheReply(LocalTransport):
    """Stops the process for longer than a lease after a reply was applied, before the callers
    continue."""

    stalls = False

    async def wait(self, poll: Poll) -> LimiterReply:
        reply = await super().wait(poll)
        if self.stalls:
            self.stalls = False
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualTimeLoop)
            loop.call_soon(loop.pass_time, 11.0)
        return reply


class StalledOnTheWayBack(LocalTransport):
    """Delays the limiter's replies while it is stalled."""

    stall: asyncio.Event | None = None

    async def wait(self, poll: Poll) -> LimiterReply:
        reply = await super().wait(poll)
        if self.stall is not None:
            await self.stall.wait()
        return reply


class Stalling(LocalTransport):
    """Delivers nothing while it is stalled."""

    stall: asyncio.Event | None = None

    async def exchange(self, batch: Batch) -> LimiterReply:
        if self.stall is not None:
            await self.stall.wait()
        return await super().exchange(batch)

    async def wait(self, poll: Poll) -> LimiterReply:
        if self.stall is not None:
            await self.stall.wait()
        return await super().wait(poll)


class Flaky(LocalTransport):
    """In turn: loses the request, loses the reply, loses nothing."""

    def __init__(self, host: LimiterHost) -> None:
        super().__init__(host)
        self.count = 0

    async def exchange(self, batch: Batch) -> LimiterReply:
        self.count += 1
        if self.count % 3 == 0:
            raise LimiterUnreachable("the request was lost")
        reply = await super().exchange(batch)
        if self.count % 3 == 1:
            raise LimiterUnreachable("the reply was lost")
        return reply


def test_an_unreliable_transport_loses_no_permit_and_no_caller() -> None:
    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=3, lease=60)
        clients = [Limiter(Flaky(host), name=f"client {n}") for n in range(3)]
        inside = peak = done = 0

        async def caller(limiter: Limiter) -> None:
            nonlocal inside, peak, done
            async with limiter.permit():
                inside += 1
                peak = max(peak, inside)
                await asyncio.sleep(0.01)
                inside -= 1
                done += 1

        await asyncio.gather(*(caller(clients[n % 3]) for n in range(60)))
        for client in clients:
            await client.flush()
        assert done == 60
        assert peak <= 3
        assert host.snapshot().in_use == 0
        assert host.snapshot().expired == 0, "no permit had to expire"

    run_virtually(scenario())


class Broken(LocalTransport):
    """Raises an unexpected error."""

    async def exchange(self, batch: Batch) -> LimiterReply:
        raise ZeroDivisionError("a defect")


async def test_a_defect_of_the_limiter_is_raised_in_waiting_callers() -> None:
    limiter = Limiter(Broken(local_host(LimiterSettings(1))))
    with pytest.raises(LimiterError, match="a defect"):
        await take(limiter)
