"""Races: mistakes that show only if things of the same moment happen in another order than first
in, first out."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import aiohttp

from tests.proof.mistake import mistake
from tests.reference_tool import GoodTool, PeerRequest, PeerResult


@mistake(
    "answers_are_own", "same-moment[seconds=0s]", also=("text_is_truthful",), schedule={"random": 1}
)
class AnswersInOrder(GoodTool):
    """Answers are taken to come in the order of the requests, as on a single connection."""

    def __init__(self, config: dict[str, Any], tool_schema: Any = None) -> None:
        super().__init__(config, tool_schema)
        self.waiting: deque[asyncio.Future[PeerResult]] = deque()

    async def run(self, request: PeerRequest) -> PeerResult:
        mine: asyncio.Future[PeerResult] = asyncio.get_running_loop().create_future()
        self.waiting.append(mine)
        answer = await super().run(request)
        self.waiting.popleft().set_result(answer)
        return await mine


@mistake("outcomes", "same-moment[seconds=0s]", schedule={"random": 1})
class ExpectsThePingFirst(GoodTool):
    """A ping goes before each request; if its answer is not there when the program has ended, the
    sandbox is dead."""

    async def send(
        self, session: aiohttp.ClientSession, url: str, request: PeerRequest
    ) -> PeerResult:
        ping = asyncio.ensure_future(self.ping(session, url.replace("run_code", "v1/ping")))
        result = await super().send(session, url, request)
        if ping.done():
            return result
        await ping
        return PeerResult("unreachable", "it does not answer pings")

    async def ping(self, session: aiohttp.ClientSession, url: str) -> None:
        async with session.get(url) as answer:
            await answer.read()
