"""An interrupt at any line of a client leaves nothing behind that a lease does not heal."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import pytest

from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.limiter import (
    Limiter,
    LimiterSettings,
    LocalTransport,
    client,
    client_core,
    local_host,
)

LEASE = 6.0
FILES = {client.__file__, client_core.__file__}


class Interrupt(BaseException):
    """Like KeyboardInterrupt, which would also end the loop."""


class InterruptAt:
    """Raises Interrupt once, before the line of the client that is reached as the ``nth``."""

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.where = ""

    def __call__(self, frame: Any, event: str, _: object) -> Any:
        if frame.f_code.co_filename not in FILES:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise Interrupt
        return self


async def interrupted(nth: int) -> str:
    """Interrupt some callers; return where, or an empty text if they made fewer steps."""
    host = local_host(LimiterSettings(2, LEASE), asyncio.get_running_loop().time)
    limiter = Limiter(LocalTransport(host))

    async def caller(timeout: float | None = None) -> None:
        async with limiter.permit(timeout):
            await asyncio.sleep(0.01)

    interrupt = InterruptAt(nth)
    sys.settrace(interrupt)
    try:
        callers = [asyncio.create_task(caller()) for _ in range(3)]
        await asyncio.wait(callers, timeout=1.0)
        callers.append(asyncio.create_task(caller()))  # finds a free permit
        await asyncio.wait(callers, timeout=1.0)
    finally:
        sys.settrace(None)
    for task in callers:
        task.cancel()
    await asyncio.wait(callers)
    del callers, task  # their tracebacks refer to permits
    await asyncio.sleep(2 * LEASE)
    await asyncio.gather(*(caller(LEASE) for _ in range(3)))
    await asyncio.sleep(LEASE)
    snapshot = host.snapshot()
    assert (snapshot.in_use, snapshot.waiting, limiter.held, limiter.waiting) == (0, 0, 0, 0), (
        interrupt.where
    )
    return interrupt.where


@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)
def test_a_client_works_again_after_an_interrupt_at_any_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    seen = []
    while where := run_virtually(interrupted(1 + len(seen))):
        seen.append(where)
    places = {where.partition(":")[0] for where in seen}
    assert {
        "ClientCore._make_batch",
        "ClientCore.receive",
        "Limiter._settle",
        "LeasedPermit.__aexit__",
    } <= places
    assert {"Limiter._take", "ClientCore.take", "ClientCore.give_back"} <= places
