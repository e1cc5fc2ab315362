"""The client of a limiter: order, cancellation, releases and renewals."""

from __future__ import annotations

import asyncio
import math

import pytest
import uvloop

from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.errors import PermitTimeout
from sfusion_tools.limiter import (
    Limiter,
    LimiterCore,
    LimiterHost,
    LimiterSettings,
    LocalTransport,
    local_host,
    local_limiter,
)
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.limiter.hosts import host_on_loop_time, settle


async def test_callers_of_one_client_are_served_in_order() -> None:
    limiter = local_limiter(LimiterSettings(1))
    order: list[int] = []

    async def caller(number: int) -> None:
        async with limiter.permit():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(caller(number) for number in range(50)))
    assert order == list(range(50))


async def test_a_permit_that_nobody_waits_for_costs_no_turn_of_the_loop_and_no_message() -> None:
    host = local_host(LimiterSettings(2))
    limiter = Limiter(LocalTransport(host))
    await give(await take(limiter))  # attaches
    await limiter.flush()
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "a turn")
    async with limiter.permit(10.0) as outer, limiter.permit() as inner:
        assert host.snapshot().in_use == limiter.held == 2
        assert outer.waited == inner.waited == 0.0
    assert host.snapshot().in_use == limiter.held == 0
    assert not turns
    assert limiter._core.send_at == math.inf


async def test_a_caller_that_finds_no_free_permit_is_not_overtaken_by_a_client_that_finds_one() -> (
    None
):
    host = local_host(LimiterSettings(1))
    left, right = (Limiter(LocalTransport(host), name=name) for name in ("left", "right"))
    for limiter in (left, right):
        await give(await take(limiter))
        await limiter.flush()
    held = await take(left)
    order: list[str] = []

    async def caller(limiter: Limiter) -> None:
        async with limiter.permit():
            order.append(limiter.name)

    async def release_and_ask_again() -> None:
        await give(held)
        await caller(left)

    await asyncio.gather(caller(right), release_and_ask_again())
    assert order == ["right", "left"]


async def test_a_permit_released_by_a_finaliser_inside_the_limiter_returns_with_a_message() -> None:
    host = local_host(LimiterSettings(1))
    limiter = Limiter(LocalTransport(host))
    await give(await take(limiter))
    await limiter.flush()
    held = await take(limiter)
    with host._lock:  # where the garbage collector can run
        await give(held)
        assert limiter.held == 0
    assert host.snapshot().in_use == 1
    await limiter.flush()
    assert host.snapshot().in_use == 0


async def test_permits_taken_without_a_message_are_renewed() -> None:
    async def hold() -> tuple[int, int]:
        host = host_on_loop_time(rate_limit=1, lease=6.0)
        limiter = Limiter(LocalTransport(host))
        await give(await take(limiter))
        await asyncio.sleep(100)  # nothing of the first permit is left
        async with limiter.permit():
            await asyncio.sleep(100)
            return host.snapshot().in_use, host.snapshot().expired

    assert await asyncio.to_thread(run_virtually, hold()) == (1, 0)


async def test_permits_held_never_exceed_the_limit() -> None:
    limiter = local_limiter(LimiterSettings(3))
    inside: set[int] = set()
    peak = 0

    async def caller(number: int) -> None:
        nonlocal peak
        async with limiter.permit():
            inside.add(number)
            peak = max(peak, len(inside))
            await asyncio.sleep(0)
            inside.discard(number)

    await asyncio.gather(*(caller(number) for number in range(200)))
    assert peak == 3


async def test_a_busy_client_hands_permits_on_instead_of_requesting_each() -> None:
    host = local_host(LimiterSettings(2))
    limiter = Limiter(LocalTransport(host))

    async def caller() -> None:
        async with limiter.permit():
            await asyncio.sleep(0)

    await asyncio.gather(*(caller() for _ in range(500)))
    await limiter.flush()
    snapshot = host.snapshot()
    assert snapshot.granted + snapshot.handed_on == 500
    assert snapshot.handed_on > 450


async def test_two_waiting_clients_are_served_in_turn() -> None:
    host = local_host(LimiterSettings(1))
    left, right = (Limiter(LocalTransport(host), name=name) for name in ("left", "right"))
    held = await take(left)
    order: list[str] = []

    async def caller(limiter: Limiter, label: str) -> None:
        async with limiter.permit():
            order.append(label)

    tasks = []
    for number in range(6):
        limiter = (left, right)[number % 2]
        tasks.append(asyncio.create_task(caller(limiter, f"{limiter.name} {number}")))
        await settle()
        assert host.snapshot().waiting == number + 1
    await give(held)
    await asyncio.gather(*tasks)
    assert order == ["left 0", "right 1", "left 2", "right 3", "left 4", "right 5"]


async def test_a_cancelled_caller_leaves_the_queue() -> None:
    host = local_host(LimiterSettings(1))
    limiter = Limiter(LocalTransport(host))
    held = await take(limiter)
    gives_up = asyncio.create_task(take(limiter))
    stays = asyncio.create_task(take(limiter))
    await settle()
    gives_up.cancel()
    await settle()
    assert host.snapshot().waiting == 1
    await give(held)
    assert (await stays).id


async def test_a_caller_cancelled_at_the_moment_of_the_grant_returns_the_permit() -> None:
    host = local_host(LimiterSettings(1))
    limiter = Limiter(LocalTransport(host))
    held = await take(limiter)
    unlucky = asyncio.create_task(take(limiter))
    await settle()
    await give(held)  # hands on: the future is done, the caller has not run yet
    unlucky.cancel()
    with pytest.raises(asyncio.CancelledError):
        await unlucky
    await limiter.flush()
    assert host.snapshot().in_use == 0


async def test_a_second_release_of_a_permit_does_nothing() -> None:
    host = local_host(LimiterSettings(2))
    limiter = Limiter(LocalTransport(host))
    first, second = await take(limiter), await take(limiter)
    await give(first)
    await give(first)
    await limiter.flush()
    assert host.snapshot().in_use == 1
    assert host.snapshot().fenced == 0
    await give(second)


@pytest.mark.parametrize("first", ["release", "acquire"])
async def test_a_permit_of_an_earlier_life_returns_when_it_is_released(first: str) -> None:
    host = LimiterHost(
        LimiterCore(LimiterSettings(2), 0.0, unleased={"callers": ("old-1",)}), lambda: 0.0
    )
    limiter = Limiter(LocalTransport(host), name="callers", held=["old-1"])
    adopted = limiter.adopt("old-1")
    if first == "acquire":
        await give(await take(limiter))
    await give(adopted)
    await limiter.flush()
    assert host.snapshot().in_use == 0


def test_acquire_with_a_timeout_raises_permit_timeout() -> None:
    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=1)
        limiter = Limiter(LocalTransport(host))
        held = await take(limiter)
        with pytest.raises(PermitTimeout, match="no permit within 7 s"):
            await take(limiter, 7)
        assert asyncio.get_running_loop().time() == pytest.approx(7)
        await settle()
        assert host.snapshot().waiting == 0
        await give(held)
        assert (await take(limiter, 7)).id, "the caller that gave up holds nothing"

    run_virtually(scenario())


def test_held_permits_are_renewed_until_released() -> None:
    async def scenario() -> None:
        host = host_on_loop_time(rate_limit=1, lease=10)
        permit = await take(Limiter(LocalTransport(host)))
        await asyncio.sleep(1000)
        snapshot = host.snapshot()
        assert (snapshot.in_use, snapshot.expired) == (1, 0)
        await give(permit)

    run_virtually(scenario())


async def test_no_deadline_is_left_of_a_permit_that_was_granted() -> None:
    loop = asyncio.get_running_loop()

    def pending() -> int:
        return sum(
            not timer.cancelled() and timer.when() > loop.time() + 500 for timer in loop._scheduled
        )  # type: ignore[attr-defined]

    limiter = local_limiter(LimiterSettings(1))
    async with limiter.permit(600.0):
        assert pending() == 0
        waiting = asyncio.ensure_future(limiter.permit(600.0).__aenter__())
        await asyncio.sleep(0)
        assert pending() == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert pending() == 0


def test_a_renewal_that_is_overdue_can_be_planned_again_in_uvloop() -> None:
    """Its loop returns a handle without a time for what is due."""

    async def main() -> None:
        limiter = Limiter(LocalTransport(local_host(LimiterSettings(1))))
        async with limiter.permit():
            for _ in range(2):
                limiter._core.renew_at = 0.0
                loop = asyncio.get_running_loop()
                limiter._schedule(loop, loop.time())
        await limiter.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_paced_limiter_with_all_permits_out_grants_as_soon_as_the_next_request_may_start() -> (
    None
):
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        limiter = Limiter(
            LocalTransport(host_on_loop_time(rate_limit=1, per_second=2.0, burst=1)), name="a"
        )

        async def caller() -> None:
            async with limiter.permit():
                await asyncio.sleep(0.01)

        await asyncio.gather(*(caller() for _ in range(5)))
        await limiter.aclose()
        return loop.time()

    assert run_virtually(scenario()) == pytest.approx(2.01)
