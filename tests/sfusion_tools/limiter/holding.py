"""Permits that a test holds from one statement to another; everything else uses ``async with``."""

from __future__ import annotations

from sfusion_tools.limiter import Limiter, Permit


async def take(limiter: Limiter, timeout: float | None = None) -> Permit:
    return await limiter.permit(timeout).__aenter__()


async def give(permit: Permit) -> None:
    """Release it; this does not let other tasks run."""
    await permit.__aexit__()
