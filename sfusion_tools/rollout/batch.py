"""Runs many requests concurrently and stops when enough of them are done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from sfusion_tools.rollout.driver import RolloutDriver
from sfusion_tools.rollout.request import AsyncRolloutRequest
from sfusion_tools.rollout.states import AsyncRolloutRequestStateEnum as State
from sfusion_tools.rollout.states import EndCause
from sfusion_tools.rollout.toolset import settle

logger = logging.getLogger(__name__)


async def run_batch(
    driver: RolloutDriver,
    requests: Sequence[AsyncRolloutRequest],
    *,
    enough: int | None = None,
    at_once: int | None = None,
    on_end: Callable[[AsyncRolloutRequest], None] | None = None,
) -> list[AsyncRolloutRequest]:
    """Run all requests and return them in order, each in a final state.

    With ``enough``, the rest are cancelled as soon as that many are finished: COMPLETED, rewarded and released
    (over-sampling). At most ``at_once`` run concurrently. ``on_end`` is called once with each request when it has
    ended; if it raises, the batch is cancelled and the error is raised. An error that is not an Exception,
    such as GuardTripped, takes precedence over one that is.
    """
    if enough is not None and not 1 <= enough <= len(requests):
        raise ValueError(f"enough is {enough}: it must be between 1 and {len(requests)}, the size of the batch")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once is {at_once}: it must be at least 1")
    batch = _Batch(driver, requests, at_once or len(requests), on_end)
    try:
        while batch.running and not batch.errors and (enough is None or batch.finished < enough):
            await asyncio.wait(batch.running, return_when=asyncio.FIRST_COMPLETED)
            batch.collect()
    finally:
        # Also when this function itself is cancelled: no request may be left holding a permit.
        for task in batch.running:
            task.cancel()
        cancelled = await settle(batch.running)
        batch.collect()
    if cancelled is not None:
        raise cancelled
    if batch.errors:
        raise min(batch.errors, key=lambda error: isinstance(error, Exception))
    return list(requests)


class _Batch:
    """The tasks of a batch. A task leaves ``running`` when its request is reported, so each is reported once."""

    def __init__(
        self,
        driver: RolloutDriver,
        requests: Sequence[AsyncRolloutRequest],
        at_once: int,
        on_end: Callable[[AsyncRolloutRequest], None] | None,
    ) -> None:
        self._driver = driver
        self._gate = asyncio.Semaphore(max(at_once, 1))
        self._on_end = on_end
        self.running = {asyncio.ensure_future(self._run(request)): request for request in requests}
        self.finished = 0
        self.errors: list[BaseException] = []

    async def _run(self, request: AsyncRolloutRequest) -> None:
        async with self._gate:
            await self._driver.run(request)

    def collect(self) -> None:
        """Report the requests whose tasks are done, in the order of the batch."""
        for task in [task for task in self.running if task.done()]:
            request = self.running.pop(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                self.errors.append(error)
            if not request.state.is_final:
                request.stop(EndCause.CANCELLED, "the batch ended before this request began")
            # A COMPLETED request with a failure has no rewards.
            self.finished += request.state is State.COMPLETED and request.failure is None
            if self._on_end is not None:
                try:
                    self._on_end(request)
                except BaseException as error:  # the other requests are to be reported too
                    logger.exception("on_end raised for request %s", request.request_id)
                    self.errors.append(error)
