"""Runs many requests concurrently and stops when enough of them are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sfusion_tools.rollout.driver import RolloutDriver
from sfusion_tools.rollout.request import AsyncRolloutRequest
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.states import EndCause


async def run_batch(
    driver: RolloutDriver,
    requests: Sequence[AsyncRolloutRequest],
    *,
    enough: int | None = None,
    at_once: int | None = None,
    on_end: Callable[[AsyncRolloutRequest], None] | None = None,
) -> list[AsyncRolloutRequest]:
    """Run all requests and return them in order, each in a final state.

    With ``enough``, the rest are cancelled as soon as that many are COMPLETED (over-sampling), and release their tools
    before this returns. At most ``at_once`` run concurrently. ``on_end`` is called with each request when it ends.
    """
    if enough is not None and not 1 <= enough <= len(requests):
        raise ValueError(f"enough is {enough}: it must be between 1 and {len(requests)}, the size of the batch")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once is {at_once}: it must be at least 1")
    gate = asyncio.Semaphore(at_once or max(len(requests), 1))

    async def run(request: AsyncRolloutRequest) -> None:
        async with gate:
            await driver.run(request)
        if on_end is not None:
            on_end(request)

    running = {asyncio.ensure_future(run(request)) for request in requests}
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if enough is not None and sum(r.state is State.COMPLETED for r in requests) >= enough:
                break
    finally:
        # Also when this function itself is cancelled: no request may be left holding a permit.
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for request in requests:
            if not request.state.is_final:
                # Cancelled before it began: the driver never saw it.
                request.fail(EndCause.CANCELLED, "the batch ended before this request began")
            if on_end is not None and request.ended_by is EndCause.CANCELLED:
                on_end(request)
    return list(requests)
