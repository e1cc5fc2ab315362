"""Mistakes that held every bundled cell when they were first written, each a few lines of a right
tool.

The first eleven are those with which the trial began.
"""

from __future__ import annotations

import asyncio
import html
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import aiohttp

from tests.reference_tool import PROGRAMS, GoodTool, PeerRequest, PeerResult, Shared

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


@planted("output is escaped as for a page")
class EscapesOutput(GoodTool):
    def output(self, result: PeerResult) -> str:
        return html.escape(super().output(result))


@planted("a missing value is written behind the output")
class WritesNone(GoodTool):
    def output(self, result: PeerResult) -> str:
        return f"{super().output(result).rstrip()}\n{None}"


@planted("a cut names what is left as if it were missing")
class TellsWhatIsLeft(GoodTool):
    def cut(self, text: str) -> str:
        if len(text) <= 10_000:
            return text
        return f"{text[:5000]}\n[… 10000 characters cut …]\n{text[-5000:]}"


@planted("a number of characters counts bytes")
class CountsBytes(GoodTool):
    def cut(self, text: str) -> str:
        raw = text.encode()
        if len(raw) <= 10_000:
            return text
        head = raw[:5000].decode(errors="ignore")
        tail = raw[-5000:].decode(errors="ignore")
        return f"{head}\n[… {len(raw) - 10_000} characters cut …]\n{tail}"


@planted("a refused request is sent again")
class RetriesRefusals(GoodTool):
    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> PeerResult:
        result = super().read(status, headers, body)
        return replace(result, transient=True) if 400 <= status < 500 else result


@planted("a 504 is sent again at once")
class ComesBackAfterA504(GoodTool):
    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        return 0.0 if "504" in result.message else super().pause(request, number, result)

    def may_retry(self, result: PeerResult, number: int) -> bool:
        return ("504" in result.message and number < 3) or super().may_retry(result, number)


@planted("each attempt is waited for half as long")
class LosesPatience(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        self._number = 0
        return await super().run(request)

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        self._number += 1
        return await super().attempt(replace(request, left=20.0 / self._number**2), failed)


@planted("the event loop sleeps between attempts")
class SleepsInTheLoop(GoodTool):
    def pause(self, request: PeerRequest, number: int, result: PeerResult) -> float:
        if self.may_retry(result, number):
            time.sleep(super().pause(request, number, result))
        return 0.0


@planted("calls are sent one after the other")
class OneLock(GoodTool):
    @asynccontextmanager
    async def permit(self, shared: Shared) -> AsyncIterator[None]:
        lock = vars(shared).setdefault("lock", asyncio.Lock())
        async with lock, super().permit(shared):
            yield


@planted("the same program is sent once for calls at the same time")
class SingleFlight(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        flying = vars(self.shared()).setdefault("flying", {})
        if request.code not in flying:
            flying[request.code] = asyncio.ensure_future(super().run(request))
            flying[request.code].add_done_callback(lambda _: flying.pop(request.code, None))
        result: PeerResult = await flying[request.code]
        return result


@planted("only 256 KiB of an answer are read")
class ReadsTheBeginning(GoodTool):
    async def read_body(self, answer: aiohttp.ClientResponse) -> bytes:
        return (await answer.read())[:262_144]


@planted("more than 32 calls are turned away")
class ShortQueue(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        there = vars(self.shared()).setdefault("there", set())
        if len(there) >= 32:
            return PeerResult("throttled", "its queue is full")
        there.add(request.call)
        try:
            return await super().run(request)
        finally:
            there.discard(request.call)


@planted("code is cut after 8,000 characters")
class CutsCode(GoodTool):
    def body(self, request: PeerRequest) -> dict[str, Any]:
        return {**super().body(request), "code": request.code[:8000]}


@planted("a program that runs out of memory is told as a failure of the sandbox")
class BlamesMemory(GoodTool):
    def printed(self, outcome: str, part: dict[str, Any]) -> PeerResult:
        if "MemoryError" in (part["stderr"] or ""):
            return PeerResult("sandbox_error", "it ran out of memory")
        return super().printed(outcome, part)
