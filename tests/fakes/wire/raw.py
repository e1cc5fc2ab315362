"""A raw TCP client that shows bytes, closes and resets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from typing import Any, Literal

from tests.patience import PATIENCE

End = Literal["closed", "reset"]


def run_code(code: str = "print(1)", path: str = "/run_code", **fields: Any) -> bytes:
    body = json.dumps({"code": code, "language": "python", **fields}).encode()
    return post(path, body)


def post(path: str, body: bytes, headers: str = "content-type: application/json\r\n") -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {len(body)}\r\n\r\n"
    ).encode() + body


def get(path: str, token: str | None = None) -> bytes:
    guarded = f"x-sfusion-token: {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{guarded}\r\n".encode()


PING = get("/v1/ping")


class RawAnswer:
    """Head and body of an answer."""

    def __init__(self, head: bytes, body: bytes) -> None:
        self.head = head
        self.body = body

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        found = re.search(rf"^{name}: (.*)\r$", self.head.decode(), re.MULTILINE)
        return found.group(1) if found else None


class Raw:
    """A TCP connection to a server on this machine."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Raw:
        self.reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    @property
    def socket(self) -> Any:
        return self._writer.get_extra_info("socket")

    async def __aexit__(self, *exc: object) -> None:
        self._writer.close()
        with contextlib.suppress(
            OSError
        ):  # it may have been reset, which is what the test was about
            await self._writer.wait_closed()

    def half_close(self) -> None:
        self._writer.write_eof()

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def send(self, data: bytes) -> None:
        self.write(data)
        with contextlib.suppress(ConnectionError):  # reading will show it
            await self._writer.drain()

    def reset(self) -> None:
        self._writer.transport.abort()

    async def answer(self) -> RawAnswer:
        """Read one answer of known length."""
        async with asyncio.timeout(PATIENCE):
            head = await self.reader.readuntil(b"\r\n\r\n")
            found = re.search(rb"content-length: (\d+)", head)
            assert found, head
            return RawAnswer(head, await self.reader.readexactly(int(found.group(1))))

    async def ask(self, data: bytes) -> RawAnswer:
        """Send a request and read its answer."""
        await self.send(data)
        return await self.answer()

    async def rest(self) -> tuple[bytes, End]:
        """Read until the server ends the connection, and return how it ended."""
        got = b""
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(65536):
                    got += data
            except ConnectionResetError:
                return got, "reset"
        return got, "closed"


async def one(port: int, data: bytes) -> RawAnswer:
    """Send one request on a new connection."""
    async with Raw(port) as raw:
        return await raw.ask(data)


async def whole(port: int, data: bytes) -> tuple[bytes, End]:
    """Send on a new connection and read to its end."""
    async with Raw(port) as raw:
        await raw.send(data)
        return await raw.rest()


class Watch(list[dict[str, Any]]):
    """A journal that a test can wait on: pass its ``note`` to a fake."""

    def __init__(self) -> None:
        super().__init__()
        self._more = asyncio.Event()

    def note(self, event: dict[str, Any]) -> None:
        self.append(event)
        self._more.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after every event."""
        async with asyncio.timeout(PATIENCE):
            while not condition():
                self._more.clear()
                await self._more.wait()

    def kinds(self) -> list[str]:
        return [event["event"] for event in self]
