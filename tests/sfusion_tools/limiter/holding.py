"""Permits that a test holds from one statement to another; everything else uses ``async with``."""

from __future__ import annotations

from typing import Any

from sfusion_tools.limiter import Permit, PermitSource


async def take(limiter: PermitSource, timeout: float | None = None) -> Permit[Any]:
    return await limiter.permit(timeout).__aenter__()


async def give(permit: Permit[Any]) -> None:
    """Release it; this does not let other tasks run."""
    await permit.__aexit__()
