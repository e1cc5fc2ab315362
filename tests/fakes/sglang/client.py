"""A plain HTTP client for tests of the server."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import aiohttp

CODE_TOOL = {
    "type": "function",
    "function": {
        "name": "code_interpreter",
        "description": "Run Python code.",
        "parameters": {
            "type": "object",
            "properties": {"code": {"type": "string"}, "timeout": {"type": "integer"}},
            "required": ["code"],
        },
    },
}
SEARCH_TOOL = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "top_k": {"type": "integer"}},
            "required": ["query", "top_k"],
        },
    },
}
HI = [{"role": "user", "content": "hi"}]


class HttpAnswer(NamedTuple):
    status: int
    text: str
    content_type: str | None

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        """The events of a stream; the last must be the end."""
        lines = self.text.split("\n\n")[:-1]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def post(url: str, path: str, body: Any, **options: Any) -> HttpAnswer:
    """Send a body, as JSON unless it is bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"content-type": "application/json"} | options.pop("headers", {})
    method = options.pop("method", "POST")
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url + path, data=data, headers=headers, **options) as answer,
    ):
        return HttpAnswer(answer.status, await answer.text(), answer.headers.get("content-type"))


async def chat(url: str, **body: Any) -> HttpAnswer:
    """Post to the chat route; the default message is `hi`."""
    return await post(url, "/v1/chat/completions", {"model": "m", "messages": HI} | body)


async def get(url: str, path: str) -> HttpAnswer:
    async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
        return HttpAnswer(answer.status, await answer.text(), answer.headers.get("content-type"))
