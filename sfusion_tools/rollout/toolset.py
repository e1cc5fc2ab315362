"""The tools of one trajectory, from create to release, whichever verl release they were written for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from sfusion_tools.base_tool import BaseTool
from sfusion_tools.rollout.turns import PlannedCall, ToolResult
from sfusion_tools.schemas import ToolResponse

_log = logging.getLogger(__name__)


class ToolSet:
    """The use of shared tools by one trajectory."""

    def __init__(self, tools: Mapping[str, BaseTool], request_id: str, kwargs: Mapping[str, Mapping[str, Any]]) -> None:
        self._tools = tools
        self._request_id = request_id
        self._kwargs = kwargs
        self._instances: dict[str, str] = {}

    async def create(self) -> None:
        """Call ``create`` of every tool; raise the first error once all have answered."""
        # Set before the calls: a creation that fails half way is released too.
        self._instances = dict.fromkeys(self._tools, self._request_id)
        answers = await asyncio.gather(*(self._create(name) for name in self._tools), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer

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
        return list(await asyncio.gather(*(self._execute(call) for call in calls)))

    async def _execute(self, call: PlannedCall) -> ToolResult:
        try:
            answer: Any = await self._tools[call.name].execute(
                self._instances[call.name],
                dict(call.arguments),
                **self._options(call.name, "execute_kwargs"),
            )
            return _read_result(answer)
        except Exception as error:
            _log.warning("tool %s raised %s: %s", call.name, type(error).__name__, error)
            return ToolResult(
                ToolResponse(text=f"Error executing tool {call.name!r}: {error}"), reward=0.0, raised=True
            )

    async def rewards(self) -> dict[str, Any]:
        """Return the reward of the whole trajectory from every tool."""
        names = list(self._tools)
        found = await asyncio.gather(
            *(
                self._tools[name].calc_reward(self._instances[name], **self._options(name, "calc_reward_kwargs"))
                for name in names
            )
        )
        return dict(zip(names, found, strict=True))

    async def release(self) -> int:
        """Call ``release`` of every tool that was created; return how many raised."""
        created, self._instances = self._instances, {}
        answers = await asyncio.gather(
            *(
                self._tools[name].release(instance, **self._options(name, "release_kwargs"))
                for name, instance in created.items()
            ),
            return_exceptions=True,
        )
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        for error in errors:
            _log.warning("a tool could not be released: %s: %s", type(error).__name__, error)
        return len(errors)

    def _options(self, name: str, which: str) -> Mapping[str, Any]:
        options = self._kwargs.get(name, {}).get(which)
        return options if isinstance(options, Mapping) else {}


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
