"""The client of a limiter: order, cancellation, leases, and a limiter that is sometimes unreachable."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import subprocess
import sys
import threading
import weakref

import pytest
import uvloop

from sfusion.harness.worlds.virtual_time import VirtualTimeLoop, run_virtually
from sfusion_tools.deadlines import Deadlines
from sfusion_tools.errors import ConfigError, LimiterClosed, LimiterError, LimiterUnreachable, PermitTimeout
from sfusion_tools.limiter import (
    Limiter,
    LimiterCore,
    LimiterHost,
    LimiterSettings,
    LocalTransport,
    local_host,
    local_limiter,
)
from sfusion_tools.limiter.blocking import BlockingLimiter
from sfusion_tools.limiter.callers import CALLERS, DirectCallers, permit_id
from sfusion_tools.limiter.choice import LimiterChoice
from sfusion_tools.limiter.local import shared_host
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from sfusion_tools.runtime import runtime
from tests.sfusion_tools.limiter.holding import give, take


async def settle() -> None:
    """Let all ready tasks run."""
    for _ in range(20):
        await asyncio.sleep(0)


def host_on_loop_time(**settings: object) -> LimiterHost:
    """Make a limiter on the clock of the running loop, virtual or not."""
    return local_host(LimiterSettings(**settings), asyncio.get_running_loop().time)  # type: ignore[arg-type]


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


async def test_a_caller_that_finds_no_free_permit_is_not_overtaken_by_a_client_that_finds_one() -> None:
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
    host = LimiterHost(LimiterCore(LimiterSettings(2), 0.0, unleased={"callers": ("old-1",)}), lambda: 0.0)
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
    """The process is stalled when it is granted a permit; when it resumes, the permit belongs to another client."""

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
        impatient, patient = (asyncio.ensure_future(take(stalled, timeout)) for timeout in (12, None))
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
    """Stops the process for longer than a lease after a reply was applied, before the callers continue."""

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


class Slow(LocalTransport):
    """Suspends its caller before and after it delivers a message."""

    async def exchange(self, batch: Batch) -> LimiterReply:
        await asyncio.sleep(0)
        reply = await super().exchange(batch)
        await asyncio.sleep(0)
        return reply

    async def wait(self, poll: Poll) -> LimiterReply:
        await asyncio.sleep(0)
        reply = await super().wait(poll)
        await asyncio.sleep(0)
        return reply


@pytest.mark.parametrize("spared", [False, True], ids=["with its callers", "without its callers"])
@pytest.mark.parametrize("limit", [1, 2])
def test_a_limiter_whose_tasks_were_cancelled_goes_on(limit: int, spared: bool) -> None:
    """At any moment: a common idiom cancels all tasks of a loop, also those it knows nothing of."""

    async def call(limiter: Limiter) -> None:
        async with limiter.permit(20):
            pass

    async def scenario(moment: int) -> None:
        host = host_on_loop_time(rate_limit=limit, lease=60)
        limiters = [Limiter(Slow(host)) for _ in range(2)]
        held = await take(limiters[0])
        callers = [asyncio.create_task(call(limiter)) for limiter in limiters]
        for _ in range(moment):
            await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {asyncio.current_task()} - set(callers if spared else ()):
            task.cancel()
        await asyncio.sleep(0)
        await give(held)
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert not spared or outcomes == [None, None]
        for limiter in limiters:
            await call(limiter)
            await limiter.flush()
        snapshot = host.snapshot()
        assert (snapshot.in_use, snapshot.waiting, snapshot.expired) == (0, 0, 0)

    for moment in range(15):
        run_virtually(scenario(moment))


def test_a_limiter_goes_on_after_an_interrupt_in_one_of_its_tasks() -> None:
    """A notebook runs the same loop again after Ctrl-C."""

    class Interrupted(LocalTransport):
        interrupts = 2

        async def exchange(self, batch: Batch) -> LimiterReply:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            return await super().exchange(batch)

    async def use() -> None:
        async with limiter.permit(5):
            pass

    limiter = Limiter(Interrupted(local_host(LimiterSettings(1))))
    with asyncio.Runner() as runner:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                runner.run(use())
        runner.run(use())


class Broken(LocalTransport):
    """Raises an unexpected error."""

    async def exchange(self, batch: Batch) -> LimiterReply:
        raise ZeroDivisionError("a defect")


async def test_a_defect_of_the_limiter_is_raised_in_waiting_callers() -> None:
    limiter = Limiter(Broken(local_host(LimiterSettings(1))))
    with pytest.raises(LimiterError, match="a defect"):
        await take(limiter)


async def test_closing_raises_in_waiting_callers_and_returns_the_permits() -> None:
    host = local_host(LimiterSettings(1))
    limiter = Limiter(LocalTransport(host))
    await take(limiter)
    waits = asyncio.create_task(take(limiter))
    await settle()
    await limiter.aclose()
    with pytest.raises(LimiterClosed):
        await waits
    with pytest.raises(LimiterClosed):
        await take(limiter)
    assert host.snapshot().in_use == 0


def test_the_end_of_a_loop_closes_its_limiter() -> None:
    """In a new process with warnings as errors: callers are cancelled half way and nothing is closed explicitly."""
    script = """
import asyncio, logging
from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, local_host
logging.getLogger("asyncio").addFilter(lambda record: "took" not in record.msg)  # a busy machine
host = local_host(LimiterSettings(1))
async def main():
    limiter = Limiter(LocalTransport(host))
    async def hold():
        async with limiter.permit():
            await asyncio.Event().wait()
    tasks = [asyncio.create_task(hold()) for _ in range(5)]
    while host.snapshot().waiting < 4:
        await asyncio.sleep(0)
asyncio.run(main(), debug=True)
print(host.snapshot().in_use, host.snapshot().waiting)
"""
    run = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("0 0\n", "")


def test_a_limiter_abandoned_after_its_loop_was_closed_leaves_nothing_behind() -> None:
    """In a new process with warnings as errors: a loop that ends without any farewell, while callers hold and wait."""
    script = """
import asyncio, gc, logging, weakref
from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, local_host
logging.getLogger("asyncio").addFilter(lambda record: "took" not in record.msg)  # a busy machine
host = local_host(LimiterSettings(1))
limiter = Limiter(LocalTransport(host))
loop = asyncio.new_event_loop()
async def hold():
    async with limiter.permit():
        await asyncio.Event().wait()
async def main():
    tasks.extend(asyncio.ensure_future(hold()) for _ in range(3))
    while host.snapshot().waiting < 2:
        await asyncio.sleep(0)
tasks = []
loop.run_until_complete(main())
loop.close()
for task in tasks:
    task._log_destroy_pending = False
limiter.abandon()
print(host.snapshot().in_use, host.snapshot().waiting)
del task, tasks
loop = weakref.ref(loop)
gc.collect()
print(loop())
"""
    run = subprocess.run([sys.executable, "-X", "dev", "-c", script], capture_output=True, text=True, timeout=60)
    assert (run.stdout, run.stderr) == ("0 0\nNone\n", "")


def test_a_permit_of_a_thread_is_visibly_free_after_its_block() -> None:
    host = local_host(LimiterSettings(1))

    class Slow(LocalTransport):
        """Delivers a message so late that a thread which does not wait for it sees its permit in use."""

        async def exchange(self, batch: Batch) -> LimiterReply:
            for _ in range(1000):
                await asyncio.sleep(0)
            return await super().exchange(batch)

    blocking = BlockingLimiter(lambda: Limiter(Slow(host)))
    counts = []
    for _ in range(5):
        with blocking.permit():
            pass
        counts.append(host.snapshot().in_use)
    blocking.close()
    assert counts == [0] * 5


def test_threads_can_hold_permits() -> None:
    host = local_host(LimiterSettings(2))
    blocking = BlockingLimiter(lambda: Limiter(LocalTransport(host)))
    inside, peak, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, peak
        for _ in range(20):
            with blocking.permit():
                with lock:
                    inside += 1
                    peak = max(peak, inside)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    blocking.close()
    assert 1 <= peak <= 2
    assert host.snapshot().in_use == 0


def test_direct_callers_release_only_their_own_permits_after_a_restart() -> None:
    stored: list[list[str]] = [[]]

    def start(incarnation: str) -> tuple[LimiterHost, DirectCallers]:
        held = tuple(map(permit_id, stored[-1]))
        core = LimiterCore(LimiterSettings(1), 0.0, incarnation=incarnation, unleased={CALLERS: held})
        host = LimiterHost(core, lambda: 0.0)
        return host, DirectCallers(LocalTransport(host), stored[-1], stored.append)

    first = start("before")[1].acquire().result()
    host, callers = start("after")
    waits = callers.acquire()
    while host.snapshot().waiting < 1:
        pass
    assert callers.release(first).result()
    second = waits.result()
    assert permit_id(second) == permit_id(first), "it was handed on"
    assert not callers.release(first).result(), "the late release is refused"
    assert callers.release(second).result()


class TestChoice:
    """Which limiter a tool uses."""

    async def test_tools_with_equal_settings_share_one_client_per_loop(self) -> None:
        choices = [LimiterChoice(LimiterSettings(2), kind="local", name="shared") for _ in range(2)]
        assert choices[0]() is choices[1]()

    def test_a_limiter_does_not_keep_its_loop_alive(self) -> None:
        choice = LimiterChoice(LimiterSettings(2), kind="local", name="loops come and go")

        async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
            async with choice().permit():
                return weakref.ref(asyncio.get_running_loop())

        loops = [asyncio.run(main()) for _ in range(3)]
        gc.collect()
        assert [loop() for loop in loops] == [None, None, None]

    async def test_auto_without_ray_warns_that_the_limit_holds_for_this_process_only(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            limiter = LimiterChoice(LimiterSettings(2), kind="auto", name="no ray here")()
        assert (await take(limiter)).id
        assert "holds for this process only" in caplog.text

    def test_limiter_ray_without_a_running_ray_is_refused_at_once(self) -> None:
        with pytest.raises(ConfigError, match=r"call ray\.init\(\) first"):
            LimiterChoice(LimiterSettings(2), kind="ray", name="x")

    @pytest.mark.parametrize("apply", [False, True])
    def test_different_settings_are_refused_or_applied_but_never_silently(
        self, apply: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        name = f"mismatch {apply}"
        shared_host(name, LimiterSettings(2), apply=False)
        with caplog.at_level(logging.WARNING):
            host = shared_host(name, LimiterSettings(50), apply=apply)
        assert host.settings.rate_limit == (50 if apply else 2)
        assert ("now it runs with rate_limit 50" if apply else "rate_limit 50 is NOT in force") in caplog.text


async def test_no_deadline_is_left_of_a_permit_that_was_granted() -> None:
    deadlines = Deadlines.of(runtime.scope())
    limiter = local_limiter(LimiterSettings(1))
    async with limiter.permit(600.0):
        assert deadlines.pending == 0
        waiting = asyncio.ensure_future(limiter.permit(600.0).__aenter__())
        await asyncio.sleep(0)
        assert deadlines.pending == 1
        waiting.cancel()
        await asyncio.wait([waiting])
        assert deadlines.pending == 0


def test_a_renewal_that_is_overdue_can_be_planned_again_in_uvloop() -> None:
    """Its loop returns a handle without a time for what is due."""

    async def main() -> None:
        limiter = Limiter(LocalTransport(local_host(LimiterSettings(1))))
        async with limiter.permit():
            for _ in range(2):
                limiter._core.renew_at = 0.0
                limiter._schedule(asyncio.get_running_loop())
        await limiter.aclose()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_a_paced_limiter_with_all_permits_out_grants_as_soon_as_the_next_request_may_start() -> None:
    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        limiter = Limiter(LocalTransport(host_on_loop_time(rate_limit=1, per_second=2.0, burst=1)), name="a")

        async def caller() -> None:
            async with limiter.permit():
                await asyncio.sleep(0.01)

        await asyncio.gather(*(caller() for _ in range(5)))
        await limiter.aclose()
        return loop.time()

    assert run_virtually(scenario()) == pytest.approx(2.01)
