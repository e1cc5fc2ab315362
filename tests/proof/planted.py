"""Mistakes that held every bundled cell when they were first written, each a few lines of a right
tool.

The first eleven are those with which the trial began.
"""

from __future__ import annotations

from typing import Any

from tests.reference_tool import PROGRAMS, GoodTool, PeerRequest, PeerResult

PLANTED: dict[str, type[GoodTool]] = {}
"""Every planted mistake by its description."""


def planted(about: str) -> Any:
    def register(tool: type[GoodTool]) -> type[GoodTool]:
        PLANTED[about] = tool
        return tool

    return register


@planted("the exit code is always told as 1")
class ExitCodeOne(GoodTool):
    def remark(self, result: PeerResult) -> str:
        return super().remark(PeerResult(result.outcome, code=1))


@planted("a timeout is told as 'No error'")
class TimeoutIsNoError(GoodTool):
    def remark(self, result: PeerResult) -> str:
        return "[No error.]" if result.outcome == "program_timeout" else super().remark(result)


@planted("outages are told as 'Your program failed'")
class OutageIsAProgramError(GoodTool):
    def text(self, result: PeerResult) -> str:
        return (
            super().text(result)
            if result.outcome in (*PROGRAMS, "bad_arguments")
            else "[Your program failed.]"
        )


@planted("the last character is dropped")
class DropsTheLastCharacter(GoodTool):
    def output(self, result: PeerResult) -> str:
        return super().output(result)[:-1]


@planted("memory_limit_mb for memory_limit_MB")
class MemoryFieldMisspelt(GoodTool):
    def body(self, request: PeerRequest) -> dict[str, Any]:
        body = super().body(request)
        limit = body.pop("memory_limit_MB")
        return {**body, "memory_limit_mb": limit}


@planted("three lines are prepended to the code")
class PrependsLines(GoodTool):
    def body(self, request: PeerRequest) -> dict[str, Any]:
        body = super().body(request)
        return {
            **body,
            "code": f"import math\nimport sys\nsys.setrecursionlimit(10000)\n{body['code']}",
        }


@planted("the deadline is ignored")
class IgnoresTheDeadline(GoodTool):
    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__({**config, "call_deadline": None}, tool_schema)


@planted("configured headers are never sent")
class SendsNoHeaders(GoodTool):
    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__({**config, "headers": {}}, tool_schema)


@planted("the reward is 1.0 for whatever ran")
class RewardsWhateverRan(GoodTool):
    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float | None:
        reward = await super().calc_reward(instance_id)
        return None if reward is None else 1.0


@planted("the arguments are emptied")
class EmptiesTheArguments(GoodTool):
    async def execute(
        self, instance_id: str, parameters: Any, **kwargs: Any
    ) -> tuple[Any, Any, Any]:
        answer = await super().execute(instance_id, parameters, **kwargs)
        if isinstance(parameters, dict):
            parameters.clear()
        return answer


@planted("instances are leaked")
class LeaksInstances(GoodTool):
    async def release(self, instance_id: str, **kwargs: Any) -> None:
        return
