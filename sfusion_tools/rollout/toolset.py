"""The tools of one trajectory, from create to release, whichever verl release they were written
for.

Nothing here relies on the code of a tool or an interaction to end, or to obey cancellation.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.errors import RolloutError, StepTimeout
from sfusion_tools.rollout.limits import RolloutLimits
from sfusion_tools.rollout.turns import PlannedCall, ToolResult
from sfusion_tools.schemas import ToolResponse

_log = logging.getLogger(__name__)

T = TypeVar("T")

_abandoned: set[asyncio.Task[Any]] = set()
"""The loop itself holds tasks only weakly."""


class ToolSet:
    """The use of shared tools by one trajectory."""

    def __init__(
        self,
        tools: Mapping[str, BaseTool],
        request_id: str,
        kwargs: Mapping[str, Mapping[str, Any]],
        limits: RolloutLimits,
    ) -> None:
        self._tools = tools
        self._request_id = request_id
        self._kwargs = kwargs
        self._limits = limits
        self._instances: dict[str, str] = {}

    async def create(self) -> None:
        """Call ``create`` of every tool; raise the first error once all have answered."""
        # Set before the calls: a creation that fails half way is released too.
        self._instances = dict.fromkeys(self._tools, self._request_id)
        await self._each("create", self._create)

    async def _create(self, name: str) -> None:
        given = self._options(name, "create_kwargs")
        # verl 0.7 and later nest the arguments, earlier releases spread them; a tool may expect
        # either.
        nested = {"create_kwargs": dict(given)} if given else {}
        answer = await self._tools[name].create(self._request_id, **given, **nested)
        instance = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(instance, str):
            self._instances[name] = instance

    async def execute(self, calls: Sequence[PlannedCall]) -> list[ToolResult]:
        """Run the calls of a turn concurrently; a tool that raises affects only its own call."""
        works = {
            f"{self._what('execute', call.name)} ({call.id})": self._execute(call) for call in calls
        }
        answers = await bounded(works, grace=self._limits.release_timeout)
        return [
            _failed(call, answer) if isinstance(answer, Exception) else answer
            for call, answer in zip(calls, answers, strict=True)
        ]

    async def _execute(self, call: PlannedCall) -> ToolResult:
        answer: Any = await self._tools[call.name].execute(
            self._instances[call.name],
            dict(call.arguments),
            **self._options(call.name, "execute_kwargs"),
        )
        return _read_result(answer)

    async def rewards(self) -> dict[str, Any]:
        """Return the reward of the whole trajectory from every tool; raise the first error once
        all have answered."""
        return dict(zip(self._tools, await self._each("calc_reward", self._reward), strict=True))

    async def _reward(self, name: str) -> Any:
        return await self._tools[name].calc_reward(
            self._instances[name], **self._options(name, "calc_reward_kwargs")
        )

    async def _each(self, method: str, work: Callable[[str], Coroutine[Any, Any, T]]) -> list[T]:
        answers = await bounded(
            {self._what(method, name): work(name) for name in self._tools},
            timeout=self._limits.tool_timeout,
            grace=self._limits.release_timeout,
        )
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return [answer for answer in answers if not isinstance(answer, Exception)]

    async def release(self) -> int:
        """Call ``release`` of every tool that was created.

        Returns how many raised or did not end in time.
        """
        works = {
            self._what("release", name): self._release(name, instance)
            for name, instance in self._instances.items()
        }
        self._instances = {}
        answers = await bounded(works, timeout=self._limits.release_timeout, grace=0.0)
        errors = 0
        for what, answer in zip(works, answers, strict=True):
            if not isinstance(answer, Exception):
                continue
            errors += 1
            if not isinstance(answer, StepTimeout):  # which was logged when it happened
                _log.warning("%s raised %s: %s", what, type(answer).__name__, answer)
        return errors

    async def _release(self, name: str, instance: str) -> None:
        await self._tools[name].release(instance, **self._options(name, "release_kwargs"))

    def _what(self, method: str, tool: str) -> str:
        return f"{method} of tool {tool!r} for request {self._request_id!r}"

    def _options(self, name: str, which: str) -> Mapping[str, Any]:
        options = self._kwargs.get(name, {}).get(which)
        return options if isinstance(options, Mapping) else {}


def _failed(call: PlannedCall, error: Exception) -> ToolResult:
    _log.warning("tool %s raised %s: %s", call.name, type(error).__name__, error)
    response = ToolResponse(text=f"Error executing tool {call.name!r}: {error}")
    return ToolResult(response, reward=0.0, raised=True)


def _read_result(answer: Any) -> ToolResult:
    """Read what ``execute`` returned.

    The response is a ToolResponse, or the plain string of verl 0.5 and earlier.
    """
    if not isinstance(answer, tuple) or len(answer) != 3:
        raise TypeError("execute() must return (response, reward, metrics)")
    response, reward, metrics = answer
    if isinstance(response, str) or response is None:
        response = ToolResponse(text=response)
    text = getattr(response, "text", None)
    # verl's own tools return verl's ToolResponse, which has the same fields.
    shown = response if isinstance(response, ToolResponse) else ToolResponse(text=text)
    # verl's old Sandbox Fusion tool returned the printed text as its reward as well.
    number = float(reward) if isinstance(reward, int | float) else None
    return ToolResult(shown, number, metrics if isinstance(metrics, Mapping) else {})


async def bounded(
    works: Mapping[str, Coroutine[Any, Any, T]],
    *,
    timeout: float | None = None,
    grace: float | None = None,
) -> list[T | Exception]:
    """Run named work concurrently for at most ``timeout`` seconds.

    Returns a result or an error for each. Work that is cancelled or out of time gets ``grace``
    seconds to stop. After that it is abandoned: only the end of the event loop waits for it. None
    means no limit.
    """
    if not works:
        return []
    tasks = {asyncio.ensure_future(work): what for what, work in works.items()}
    try:
        await asyncio.wait(tasks, timeout=timeout)
    except asyncio.CancelledError:
        await _stop(tasks, grace)
        raise
    late = [task for task in tasks if not task.done()]
    for task in late:
        _log.warning("%s did not end within %g s", tasks[task], timeout)
    if late:
        await _stop(tasks, grace)

    results: list[T | Exception] = []
    for task, what in tasks.items():
        if task in late:
            results.append(StepTimeout(f"{what} did not end within {timeout:g} s"))
            continue
        result = _result(task, what)
        if isinstance(result, BaseException) and not isinstance(result, Exception):
            raise result
        results.append(result)
    return results


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
            _log.warning(
                "%s does not stop although it was cancelled: it is left to the event loop",
                tasks[task],
            )
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


async def settle(
    tasks: Collection[asyncio.Task[Any]], seconds: float | None = None
) -> asyncio.CancelledError | None:
    """Wait until all tasks are done or the time is up.

    Returns the last cancellation of the caller, if there was one.
    """
    clock = asyncio.get_running_loop().time
    end = None if seconds is None else clock() + seconds
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        left = None if end is None else max(0.0, end - clock())
        try:
            await asyncio.wait(tasks, timeout=left)
            break
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
