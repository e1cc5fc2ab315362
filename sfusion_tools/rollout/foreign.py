"""Awaits code of tools and interactions without relying on it to end or to obey cancellation."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, TypeVar

from sfusion_tools.errors import RolloutError, StepTimeout

_log = logging.getLogger(__name__)

T = TypeVar("T")

_abandoned: set[asyncio.Task[Any]] = set()
"""The loop itself holds tasks only weakly."""


async def bounded(
    works: Mapping[str, Coroutine[Any, Any, T]], *, timeout: float | None = None, grace: float | None = None
) -> list[T | Exception]:
    """Run named work concurrently for at most ``timeout`` seconds; return a result or an error for each.

    Work that is cancelled or out of time gets ``grace`` seconds to stop. After that it is abandoned: only the end of
    the event loop waits for it. None means no limit.
    """
    if not works:
        return []
    tasks = {asyncio.ensure_future(work): what for what, work in works.items()}
    try:
        if timeout is not None:
            await asyncio.sleep(0)
            timeout = None if all(task.done() for task in tasks) else timeout  # most steps end at once: no timer
        await asyncio.wait(tasks, timeout=timeout)
    except asyncio.CancelledError:
        await _stop(tasks, grace)
        raise
    late = [task for task in tasks if not task.done()]
    for task in late:
        _log.warning("%s did not end within %g s", tasks[task], timeout)
    if late:
        await _stop(tasks, grace)
    results = [
        StepTimeout(f"{what} did not end within {timeout:g} s") if task in late else _result(task, what)
        for task, what in tasks.items()
    ]
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
    return results  # type: ignore[return-value] # the others were raised


def _result(task: asyncio.Task[T], what: str) -> T | BaseException:
    if task.cancelled():
        return RolloutError(f"{what} cancelled itself")
    error = task.exception()
    return task.result() if error is None else error


async def _stop(tasks: Mapping[asyncio.Task[Any], str], grace: float | None) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
        task.add_done_callback(_retrieve)
    cancelled = await settle(running, grace)
    for task in running:
        if not task.done():
            _log.warning("%s does not stop although it was cancelled: it is left to the event loop", tasks[task])
            _abandoned.add(task)
            task.add_done_callback(_abandoned.discard)
    if cancelled is not None:
        raise cancelled


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the exception as seen: asyncio would log it as an error that nobody handled."""
    if not task.cancelled():
        task.exception()


async def even_if_cancelled(work: Coroutine[Any, Any, T]) -> T:
    """Finish the work even if the caller is cancelled meanwhile, then raise the cancellation."""
    task = asyncio.ensure_future(work)
    cancelled = await settle({task})
    if cancelled is not None:
        _retrieve(task)
        raise cancelled
    return task.result()


async def settle(tasks: Collection[asyncio.Task[Any]], seconds: float | None = None) -> asyncio.CancelledError | None:
    """Wait until all tasks are done or the time is up; return the last cancellation of the caller, if there was one."""
    clock = asyncio.get_running_loop().time
    end = None if seconds is None else clock() + seconds
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks, timeout=None if end is None else max(0.0, end - clock()))
            break
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
