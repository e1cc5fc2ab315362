"""An upstream for the proxy that does exactly what a test says, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable

from tests.fakes.wire.raw import PATIENCE

Behaviour = Callable[["UpstreamConnection"], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class UpstreamConnection:
    """One connection from the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def head(self) -> bytes:
        """Read the next request up to its empty line."""
        return await self.reader.readuntil(b"\r\n\r\n")

    async def request(self) -> tuple[bytes, bytes]:
        """Read the head and body of the next request."""
        head = await self.head()
        found = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        return head, await self.reader.readexactly(int(found.group(1))) if found else b""

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):  # the test checks that itself
            await self.writer.drain()

    async def gone(self) -> bytes:
        """Wait until the proxy has closed the connection; return what it sent before."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def reset(self) -> None:
        self.writer.transport.abort()


class ScriptedUpstream:
    """A running upstream."""

    def __init__(self, server: asyncio.Server) -> None:
        self.port: int = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def scripted_upstream(behaviour: Behaviour) -> AsyncIterator[ScriptedUpstream]:
    """Serve one behaviour per connection; at the end, cancel what still runs."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                await behaviour(UpstreamConnection(reader, writer))
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 22)
    try:
        yield ScriptedUpstream(server)
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def always(answer: bytes, seen: list[tuple[bytes, bytes]] | None = None) -> Behaviour:
    """Answer every request with the same bytes, and record the requests."""

    async def serve(peer: UpstreamConnection) -> None:
        while True:
            request = await peer.request()
            if seen is not None:
                seen.append(request)
            await peer.send(answer)

    return serve
