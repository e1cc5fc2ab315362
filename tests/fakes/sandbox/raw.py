"""A client that sees bytes, closes and resets, and nothing more."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, Literal

End = Literal["closed", "reset"]
PATIENCE = 20.0
"""Seconds after which a test is called hung; nothing is measured with it."""


def run_code(code: str = "print(1)", path: str = "/run_code", **fields: Any) -> bytes:
    """A whole request."""
    body = json.dumps({"code": code, "language": "python", **fields}).encode()
    return post(path, body)


def post(path: str, body: bytes, headers: str = "content-type: application/json\r\n") -> bytes:
    """A whole POST."""
    return f"POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


def get(path: str) -> bytes:
    """A whole GET."""
    return f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode()


PING = get("/v1/ping")


class Heard:
    """One whole answer."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body

    @property
    def status(self) -> int:
        """The number."""
        return int(self.head.split(b" ", 2)[1])

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """One header's value."""
        found = re.search(rf"^{name}: (.*)\r$", self.head.decode(), re.MULTILINE)
        return found.group(1) if found else None


class Raw:
    """A TCP connection to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Raw:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):  # it may have been reset, which is what the test was about
            await self._writer.wait_closed()

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):  # reading will tell
            await self._writer.drain()

    def reset(self) -> None:
        """Leave without a word."""
        self._writer.transport.abort()

    async def answer(self) -> Heard:
        """Read one answer of known length."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            assert found, head
            return Heard(head, await self.reader.readexactly(int(found.group(1))))

    async def ask(self, data: bytes) -> Heard:
        """Send a request and read its answer."""
        await self.send(data)
        return await self.answer()

    async def rest(self) -> tuple[bytes, End]:
        """Everything until the server ends the connection, and how it did."""
        got = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(65536):
                    got += data
            except ConnectionResetError:
                return got, "reset"
        return got, "closed"


async def one(port: int, data: bytes) -> Heard:
    """One request on a connection of its own."""
    async with Raw(port) as raw:
        return await raw.ask(data)


async def whole(port: int, data: bytes) -> tuple[bytes, End]:
    """Send on a connection of its own and hear everything to the end."""
    async with Raw(port) as raw:
        await raw.send(data)
        return await raw.rest()


class Watch(list[dict[str, Any]]):
    """A journal that can be waited for: give its ``note`` to a fake."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def note(self, event: dict[str, Any]) -> None:
        """Something happened."""
        self.append(event)
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at again after every event."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._more.clear()
                await self._more.wait()

    def kinds(self) -> list[str]:
        """What happened, in order."""
        return [event["event"] for event in self]
