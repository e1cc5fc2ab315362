"""One client connection: aiohttp's protocol with uvicorn's manners and the power to break off."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Any

from aiohttp import web

from sfusion.fakes.wire.message import invalid_request, render_whole

if TYPE_CHECKING:
    from sfusion.fakes.wire.delivery import Delivery
    from sfusion.fakes.wire.server import WireServer

_LINGER_ZERO = struct.pack("ii", 1, 0)


class Written(web.StreamResponse):
    """Tells aiohttp that the answer's bytes are on their way already."""

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing is left to prepare."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing is left to write."""


def written(*, keep_alive: bool) -> Written:
    """A response that was sent by other means."""
    response = Written()
    # aiohttp reads this only to decide whether the connection lives on.
    if not keep_alive:
        response.force_close()
    else:
        response._keep_alive = True
    return response


def with_host(data: bytes) -> bytes:
    """Add a Host header to a hand-written request that has none: uvicorn takes it, aiohttp's parser would not."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end or b"\nhost:" in head.lower() or b" HTTP/1.1" not in head:
        return data
    return head + b"\r\nHost: " + end + body


class Connection(web.RequestHandler):
    """A connection that can be deaf, held back, closed or reset, and that says when the client is gone."""

    __slots__ = (
        "_deaf",
        "_gone",
        "_greeted",
        "_halted",
        "_held",
        "_lost",
        "_server",
        "_writable",
        "delivery",
        "full",
        "message",
    )

    def __init__(self, manager: web.Server, server: WireServer, **options: Any) -> None:
        super().__init__(manager, **options)
        self._server = server
        self._gone: asyncio.Future[None] | None = None
        self._lost = False
        self._deaf = False
        self._greeted = False
        self._halted = False
        self._held: bytearray | None = None
        self._writable: asyncio.Future[None] | None = None
        self.full = False
        """Must writing wait until the client has read more?"""
        self.delivery: Delivery | None = None
        """How the usual answers of this connection are sent; made with the first."""
        self.message: Any = None
        """The request being handled, as aiohttp's parser read it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected; faults of phase ``connect`` strike here."""
        super().connection_made(transport)
        # uvicorn counts idle time from the first answer on, aiohttp from the start.
        self.keep_alive(True)
        self._server.connected(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The client is gone; a run that it started goes on, as on the real server."""
        self._lost = True
        super().connection_lost(exc)
        for waiting in (self._gone, self._writable):
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Bytes from the client, unless the connection does not listen (yet)."""
        if self._deaf:
            return
        if self._held is not None:
            self._held += data
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        if not self._greeted:
            self._greeted = True
            data = with_host(data)
        super().data_received(data)

    @property
    def lost(self) -> bool:
        """Is the client gone?"""
        return self._lost

    def gone(self) -> asyncio.Future[None]:
        """A future that is done when the client is gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self._lost:
                self._gone.set_result(None)
        return self._gone

    def pause_reading(self) -> None:
        """More has come than is being read."""
        self._halted = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """aiohttp asks for this after every read; there is something to do only after a pause."""
        if self._halted:
            self._halted = not resume_parser
            if resume_parser:
                super().resume_reading()
            else:
                super().resume_reading(resume_parser=False)

    def pause_writing(self) -> None:
        """The client does not read what is written."""
        self.full = True
        super().pause_writing()

    def resume_writing(self) -> None:
        """The client has read what was written."""
        self.full = False
        super().resume_writing()
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)

    async def drained(self) -> None:
        """Wait until more can be written without piling it up here."""
        while self.full and not self._lost:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    def deafen(self) -> None:
        """Swallow whatever comes in from now on."""
        self._deaf = True
        self._held = None

    def hold(self) -> None:
        """Keep what comes in until ``resume``."""
        self._held = bytearray()

    def resume(self) -> None:
        """Handle what was held back."""
        held, self._held = self._held, None
        if held and not self._lost and not self._deaf:
            self._receive(bytes(held))

    def reset(self) -> None:
        """Break off with a TCP reset."""
        transport = self.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
        transport.abort()

    def finish(self) -> None:
        """Close in an orderly way after what has been written."""
        if self.transport is not None:
            self.transport.close()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp calls this for bytes that are no HTTP, and for a bug of ours; the answers are uvicorn's."""
        answer = invalid_request()
        if status >= 500 and isinstance(exc, Exception):
            self._server.log_failure(exc)
            answer = render_whole(self._server.app.failure(exc))
        if self.transport is not None:
            self.transport.write(answer)
        return written(keep_alive=False)
