"""The tools of one trajectory, from create to release, whichever verl release they were written for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.errors import StepTimeout
from sfusion_tools.rollout.foreign import bounded
from sfusion_tools.rollout.limits import RolloutLimits
from sfusion_tools.rollout.turns import PlannedCall, ToolResult
from sfusion_tools.schemas import ToolResponse

_log = logging.getLogger(__name__)

T = TypeVar("T")


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
        # verl 0.7 and later nest the arguments, earlier releases spread them; a tool may expect either.
        nested = {"create_kwargs": dict(given)} if given else {}
        answer = await self._tools[name].create(self._request_id, **given, **nested)
        instance = answer[0] if isinstance(answer, tuple) else answer
        if isinstance(instance, str):
            self._instances[name] = instance

    async def execute(self, calls: Sequence[PlannedCall]) -> list[ToolResult]:
        """Run the calls of a turn concurrently; a tool that raises affects only its own call."""
        works = {f"{self._what('execute', call.name)} ({call.id})": self._execute(call) for call in calls}
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
        """Return the reward of the whole trajectory from every tool; raise the first error once all have answered."""
        return dict(zip(self._tools, await self._each("calc_reward", self._reward), strict=True))

    async def _reward(self, name: str) -> Any:
        return await self._tools[name].calc_reward(self._instances[name], **self._options(name, "calc_reward_kwargs"))

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
        """Call ``release`` of every tool that was created; return how many raised or did not end in time."""
        created, self._instances = self._instances, {}
        works = {self._what("release", name): self._release(name, instance) for name, instance in created.items()}
        answers = await bounded(works, timeout=self._limits.release_timeout, grace=0.0)
        errors = {what: answer for what, answer in zip(works, answers, strict=True) if isinstance(answer, Exception)}
        for what, error in errors.items():
            if not isinstance(error, StepTimeout):  # which was logged when it happened
                _log.warning("%s raised %s: %s", what, type(error).__name__, error)
        return len(errors)

    async def _release(self, name: str, instance: str) -> None:
        await self._tools[name].release(instance, **self._options(name, "release_kwargs"))

    def _what(self, method: str, tool: str) -> str:
        return f"{method} of tool {tool!r} for request {self._request_id!r}"

    def _options(self, name: str, which: str) -> Mapping[str, Any]:
        options = self._kwargs.get(name, {}).get(which)
        return options if isinstance(options, Mapping) else {}


def _failed(call: PlannedCall, error: Exception) -> ToolResult:
    _log.warning("tool %s raised %s: %s", call.name, type(error).__name__, error)
    return ToolResult(ToolResponse(text=f"Error executing tool {call.name!r}: {error}"), reward=0.0, raised=True)


def _read_result(answer: Any) -> ToolResult:
    """Read what ``execute`` returned: a ToolResponse, or the plain string of verl 0.5 and earlier."""
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
