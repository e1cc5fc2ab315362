"""Permits of threads and of direct callers, which have no event loop."""

from __future__ import annotations

import asyncio
import threading

from sfusion_tools.limiter import (
    Limiter,
    LimiterCore,
    LimiterHost,
    LimiterSettings,
    LocalTransport,
    local_host,
)
from sfusion_tools.limiter.blocking import CALLERS, BlockingLimiter, DirectCallers, permit_id
from sfusion_tools.limiter.messages import Batch, LimiterReply
from tests.patience import PATIENCE


def test_a_permit_of_a_thread_is_visibly_free_after_its_block() -> None:
    host = local_host(LimiterSettings(1))

    class Slow(LocalTransport):
        """Delivers a message so late that a thread which does not wait for it sees its permit in
        use."""

        async def exchange(self, batch: Batch) -> LimiterReply:
            for _ in range(1000):
                await asyncio.sleep(0)
            return await super().exchange(batch)

    blocking = BlockingLimiter(Limiter(Slow(host)))
    counts = []
    for _ in range(5):
        with blocking.permit():
            pass
        counts.append(host.snapshot().in_use)
    blocking.close()
    assert counts == [0] * 5


def test_threads_can_hold_permits() -> None:
    host = local_host(LimiterSettings(2))
    blocking = BlockingLimiter(Limiter(LocalTransport(host)))
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
        core = LimiterCore(
            LimiterSettings(1), 0.0, incarnation=incarnation, unleased={CALLERS: held}
        )
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


def test_direct_callers_get_permits_in_the_order_in_which_they_asked() -> None:
    host = local_host(LimiterSettings(1))
    callers = DirectCallers(LocalTransport(host), [], lambda names: None)
    holder = callers.acquire().result()
    waiters = [callers.acquire() for _ in range(50)]
    for place, waiter in enumerate(waiters):
        assert callers.release(holder).result()
        holder = waiter.result(timeout=PATIENCE)
        assert not any(later.done() for later in waiters[place + 1 :])
