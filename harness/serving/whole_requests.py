"""Passes on only requests that have arrived whole, from clients that are still there.

An MCP server starts a session and a handful of tasks before it reads the body of a request, and
logs a traceback if the client leaves meanwhile. A thousand such clients would keep it busy for
seconds.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

PATIENCE = 60.0
"""Seconds in which a body must arrive (chosen: it comes from this machine)."""
MOST_WAITING = 256
"""Requests whose body may be under way (chosen: a quarter of the usual limit on open files).

When there are more, the oldest is refused.
"""
_LARGEST = 4 * 2**20
"""Bytes of a body that is read ahead: larger ones are refused by the MCP server (its default)."""
_LOOKS = 5
"""Turns of the event loop after which a connection that was reset is known to be lost.

Two for the reset to be read and to be told, and some to spare.
"""
LEFT = "left before an answer was begun"
SLOW = "sent only a part of their request in time"


class WholeRequests:
    """An ASGI app in front of another."""

    def __init__(self, app: App, say: Callable[[str], object]) -> None:
        self._app = app
        self._say = say
        self._waiting: dict[object, asyncio.Timeout] = {}
        """The oldest first."""
        self._refused: Counter[str] = Counter()
        """Requests that were not passed on, by reason."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            if self._refused:  # the server has stopped
                self._say(
                    "; ".join(f"{count:,} clients {why}" for why, count in self._refused.items())
                )
            return
        try:
            arrived = await self._read(receive)
        except TimeoutError:
            self.count(SLOW)
            closing = [(b"connection", b"close"), (b"content-length", b"0")]
            await send({"type": "http.response.start", "status": 408, "headers": closing})
            await send({"type": "http.response.body", "body": b""})
            return
        if arrived is None:
            self.count(LEFT)
            return
        await self._pass_on(scope, arrived, receive, send)

    async def _read(self, receive: Receive) -> list[Message] | None:
        """Return the messages of a body; None if the client has left."""
        messages: list[Message] = []
        size = 0
        key = object()
        try:
            async with asyncio.timeout(PATIENCE) as limit:
                self._waiting[key] = limit
                if len(self._waiting) > MOST_WAITING:
                    self.refuse(1)
                while True:
                    message = await receive()
                    if _is_end(message):
                        return None
                    messages.append(message)
                    size += len(message.get("body", b""))
                    if not message.get("more_body") or size > _LARGEST:
                        return messages
        finally:
            self._waiting.pop(key, None)

    def refuse(self, count: int | None = None) -> None:
        """Refuse requests of which only a part has arrived: the oldest, or all."""
        for key in list(self._waiting)[:count]:
            self._waiting.pop(key).reschedule(asyncio.get_running_loop().time())

    async def _pass_on(
        self, scope: Message, arrived: list[Message], receive: Receive, send: Send
    ) -> None:
        """Let the app answer, unless the client has left by now."""
        is_whole = not arrived[-1].get("more_body")
        waited = asyncio.ensure_future(receive()) if is_whole else None
        try:
            for _ in range(_LOOKS if waited is not None else 0):
                await asyncio.sleep(0)
            if waited is not None and waited.done() and _is_end(waited.result()):
                self.count(LEFT)
                return

            async def replay() -> Message:
                if arrived:
                    return arrived.pop(0)
                return await (receive() if waited is None else asyncio.shield(waited))

            await self._app(scope, replay, send)
        finally:
            if waited is not None:
                waited.cancel()

    def count(self, why: str) -> None:
        """Count a client that got no answer of the app; say so for the first of a kind."""
        self._refused[why] += 1
        if self._refused[why] == 1:
            self._say(f"clients {why}; they are counted, and the number is shown at the end")


def _is_end(message: Message) -> bool:
    return bool(message["type"] == "http.disconnect")
