"""Mistakes with asyncio: cancellation, tasks, blocking calls and state that calls share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import Any, ClassVar

import aiohttp

from tests.proof.mistake import mistake
from tests.reference_tool import GoodTool, PeerRequest, PeerResult


@mistake("outcomes", "stopped-during-a-call", also=("everything_took_effect",))
class SwallowsCancellation(GoodTool):
    """A cancelled call goes on as if nothing had happened and returns a result."""

    async def run(self, request: PeerRequest) -> PeerResult:
        try:
            return await super().run(request)
        except asyncio.CancelledError:
            return PeerResult("transport_timeout", "interrupted")


@mistake("every_call_ends_once", "stopped-during-a-call")
class CancelledCallGoesOn(GoodTool):
    """A cancelled call keeps its permit and still sends its request (verl, j)."""

    async def run(self, request: PeerRequest) -> PeerResult:
        return await asyncio.shield(super().run(request))


@mistake(
    "text_is_truthful",
    "single-node",
    also=("answers_are_own", "connections_reused", "infra_never_scored", "outcomes"),
)
class ForgetsToAwait(GoodTool):
    """The request is made in a task that nobody awaits, and the model reads an empty text."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.tasks: list[asyncio.Task[PeerResult]] = []

    async def run(self, request: PeerRequest) -> PeerResult:
        self.tasks.append(asyncio.ensure_future(super().run(request)))
        return PeerResult("ok")

    async def aclose(self) -> None:
        for task in self.tasks:
            task.cancel()
        await super().aclose()


@mistake("throughput_at_least", "one-after-the-other")
class BlocksTheLoop(GoodTool):
    """time.sleep instead of asyncio.sleep: while one call waits, all others stand still."""

    async def send(
        self, session: aiohttp.ClientSession, url: str, request: PeerRequest
    ) -> PeerResult:
        time.sleep(0.2)  # noqa: ASYNC251 - the mistake
        return await super().send(session, url, request)


@mistake(
    "answers_are_own",
    "single-node",
    also=(
        *(
            "attempts_per_call",
            "infra_never_scored",
            "no_duplicate_execution",
            "only_transient_retried",
        ),
        "text_is_truthful",
    ),
)
class StateOnTheTool(GoodTool):
    """The request is kept on the tool, where the next call overwrites it while this one waits."""

    current: PeerRequest

    async def attempt(self, request: PeerRequest, failed: Counter[str]) -> PeerResult:
        self.current = request
        return await super().attempt(request, failed)

    def body(self, request: PeerRequest) -> dict[str, Any]:
        return super().body(self.current)


@mistake("answers_are_own", "single-node", also=("text_is_truthful",))
class AnswersOfAnotherCall(GoodTool):
    """Off by one: each call gets the answer of the one that ended before it."""

    previous: PeerResult | None = None

    async def run(self, request: PeerRequest) -> PeerResult:
        mine = await super().run(request)
        self.previous, given = mine, self.previous or mine
        return given


@mistake(
    "answers_are_own", "single-node", also=("infra_never_scored", "outcomes", "text_is_truthful")
)
class ServesFromACache(GoodTool):
    """Code that looks the same, apart from comments, gets the answer of an earlier call."""

    answers: ClassVar[dict[Any, PeerResult]] = {}

    async def run(self, request: PeerRequest) -> PeerResult:
        code = "\n".join(line for line in request.code.splitlines() if not line.startswith("#"))
        key = (id(self.shared()), code)
        if key not in self.answers:
            self.answers[key] = await super().run(request)
        return self.answers[key]


@mistake("instances_released", "single-node")
class KeepsEveryInstance(GoodTool):
    """What a trajectory left is never dropped, so that a long training runs out of memory."""

    async def release(self, instance_id: str, **kwargs: Any) -> None: ...
