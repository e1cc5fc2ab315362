"""A client whose tasks are cancelled, that is closed, or whose loop ends."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.errors import LimiterClosed
from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, local_host
from sfusion_tools.limiter.messages import Batch, LimiterReply, Poll
from tests.patience import PATIENCE
from tests.sfusion_tools.limiter.holding import give, take
from tests.sfusion_tools.limiter.hosts import host_on_loop_time, settle


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
    """In a new process with warnings as errors: callers are cancelled half way and nothing is
    closed explicitly."""
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
    tasks.extend(asyncio.create_task(hold()) for _ in range(5))
    while host.snapshot().waiting < 4:
        await asyncio.sleep(0)
# Outlives main(): a task that only its own cycle refers to may be collected before it is cancelled.
tasks = []
asyncio.run(main(), debug=True)
print(host.snapshot().in_use, host.snapshot().waiting)
"""
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (run.stdout, run.stderr) == ("0 0\n", "")


def test_a_limiter_abandoned_after_its_loop_was_closed_leaves_nothing_behind() -> None:
    """In a new process with warnings as errors: a loop that ends without any farewell, while
    callers hold and wait."""
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
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (run.stdout, run.stderr) == ("0 0\nNone\n", "")


@pytest.mark.parametrize("first_ends", [True, False], ids=["closed", "stopped"])
def test_a_limiter_is_closed_in_another_loop_than_its_own(first_ends: bool) -> None:
    """Nothing stays pending, and using it there is refused in words."""
    script = f"""
import asyncio, gc, logging
from sfusion_tools.errors import LimiterClosed
from sfusion_tools.limiter import Limiter, LimiterSettings, LocalTransport, local_host
logging.getLogger("asyncio").addFilter(lambda record: "took" not in record.msg)  # a busy machine
host = local_host(LimiterSettings(1))
limiter = Limiter(LocalTransport(host))
async def use():
    await limiter.permit().__aenter__()
    waits = asyncio.create_task(limiter.permit().__aenter__())
    while not host.snapshot().waiting:
        await asyncio.sleep(0)
    waits.cancel()
    await asyncio.wait([waits])
    limiter.reattach()
    while len(asyncio.all_tasks()) < 2:
        await asyncio.sleep(0)
async def use_elsewhere():
    try:
        await limiter.permit().__aenter__()
    except LimiterClosed as error:
        print(error)
    await limiter.aclose()
loop = asyncio.new_event_loop()
loop.run_until_complete(use())
if {first_ends}:
    loop.close()
asyncio.run(use_elsewhere())
loop.close()
print(host.snapshot().in_use)
del loop
gc.collect()
"""
    run = subprocess.run(
        [sys.executable, "-X", "dev", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    refused = "this limiter belongs to another event loop; make one in each loop that uses it"
    assert (run.stdout, run.stderr) == (f"{refused}\n0\n", "")
