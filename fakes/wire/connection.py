"""One client connection: aiohttp's protocol, behaving like uvicorn's, that can be broken on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

from aiohttp import web

from sfusion.fakes.wire.message import Answer, invalid_request, render_whole

_LINGER_ZERO = struct.pack("ii", 1, 0)


class _AlreadySent(web.StreamResponse):
    """Tells aiohttp that it has nothing to send."""

    async def prepare(self, request: web.BaseRequest) -> None:
        pass

    async def write_eof(self, data: bytes = b"") -> None:
        pass


def already_sent(*, keep_alive: bool) -> web.StreamResponse:
    """A response whose bytes were written to the transport directly."""
    response = _AlreadySent()
    # aiohttp reads this only to decide whether the connection lives on.
    if not keep_alive:
        response.force_close()
    else:
        response._keep_alive = True
    return response


def with_host(data: bytes) -> bytes:
    """Add a Host header to a request that has none: uvicorn accepts that, aiohttp's parser does not."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or b"\nhost:" in head.lower() or b" HTTP/1.1" not in head:
        return data
    return head + b"\r\nHost: " + end + body


class Connection(web.RequestHandler):
    """A connection that can ignore or hold back its input, be closed or reset, and knows when the client is gone."""

    __slots__ = (
        "_connected",
        "_failed",
        "_gone",
        "_halted",
        "_held",
        "_ignoring",
        "_lost",
        "_received",
        "_writable",
        "full",
        "message",
        "number",
    )

    def __init__(
        self,
        manager: web.Server,
        connected: Callable[[Connection], None],
        failed: Callable[[Exception], Answer],
        **options: Any,
    ) -> None:
        super().__init__(manager, **options)
        self._connected = connected
        self._failed = failed
        self._gone: asyncio.Future[None] | None = None
        self._lost = False
        self._ignoring = False
        self._received = False
        self._halted = False
        self._held: bytearray | None = None
        self._writable: asyncio.Future[None] | None = None
        self.full = False
        """Writing must wait until the client has read more."""
        self.number = 0
        """Which connection of its server this is, from 1."""
        self.message: Any = None
        """The request being handled, as aiohttp's parser read it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # uvicorn counts idle time from the first answer on, aiohttp from the start.
        self.keep_alive(True)
        self._connected(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake all waiters; a program that the client started keeps running, as on the real server."""
        self._lost = True
        super().connection_lost(exc)
        for waiting in (self._gone, self._writable):
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._ignoring:
            return
        if self._held is not None:
            self._held += data
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if not self._received:
            self._received = True
            data = with_host(data)
        super().data_received(data)

    @property
    def lost(self) -> bool:
        """The client is gone."""
        return self._lost

    def gone(self) -> asyncio.Future[None]:
        """A future that is done when the client is gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self._lost:
                self._gone.set_result(None)
        return self._gone

    def pause_reading(self) -> None:
        self._halted = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp calls this after every read, but it matters only after a pause."""
        if self._halted:
            self._halted = not resume_parser
            if resume_parser:
                super().resume_reading()
            else:
                super().resume_reading(resume_parser=False)

    def pause_writing(self) -> None:
        self.full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        self.full = False
        super().resume_writing()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def drained(self) -> None:
        """Wait until the client has read enough for more to be written."""
        while self.full and not self._lost:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    def ignore_input(self) -> None:
        """Discard whatever comes in from now on."""
        self._ignoring = True
        self._held = None

    def hold_input(self) -> None:
        """Keep what comes in until ``release_input``."""
        self._held = bytearray()

    def release_input(self) -> None:
        """Handle what was held back."""
        held, self._held = self._held, None
        if held and not self._lost and not self._ignoring:
            self._receive(bytes(held))

    def reset(self) -> None:
        """Break the connection with a TCP reset."""
        transport = self.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()

    def finish(self) -> None:
        """Close after sending what has been written."""
        if self.transport is not None:
            self.transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer as uvicorn does: aiohttp calls this for bytes that are not HTTP, and for a bug of ours."""
        answer = invalid_request()
        if status >= 500 and isinstance(exc, Exception):
            answer = render_whole(self._failed(exc))
        if self.transport is not None:
            self.transport.write(answer)
        return already_sent(keep_alive=False)
