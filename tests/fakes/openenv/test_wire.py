"""The fake OpenEnv server without openenv's clients."""

from __future__ import annotations

import asyncio

from sfusion.fakes.openenv import FakeOpenEnv
from tests.sfusion_tools.sandbox.helpers import until

_HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def test_a_client_that_only_closes_its_end_leaves_no_environment() -> None:
    async with FakeOpenEnv() as fake:
        reader, writer = await asyncio.open_connection("127.0.0.1", fake.port)
        writer.write(_HANDSHAKE)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        await until(lambda: fake.snapshot()["live"] == 1)
        writer.write_eof()
        await until(lambda: fake.snapshot()["live"] == 0)
        assert await reader.read() == b""
        writer.close()
