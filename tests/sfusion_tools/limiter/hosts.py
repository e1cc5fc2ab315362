"""Limiters on the clock of the running loop, and time for tasks to run."""

from __future__ import annotations

import asyncio

from sfusion_tools.limiter import LimiterHost, LimiterSettings, local_host


async def settle() -> None:
    """Let all ready tasks run."""
    for _ in range(20):
        await asyncio.sleep(0)


def host_on_loop_time(**settings: object) -> LimiterHost:
    """Make a limiter on the clock of the running loop, virtual or not."""
    return local_host(LimiterSettings(**settings), asyncio.get_running_loop().time)  # type: ignore[arg-type]
