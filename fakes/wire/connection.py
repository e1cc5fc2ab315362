"""One client connection: aiohttp's protocol, behaving like uvicorn's, that can be broken on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

from aiohttp import web

from sfusion.fakes.wire.message import Answer, invalid_request, render_whole
from sfusion.fakes.wire.request_filter import RequestFilter

_LINGER_ZERO = struct.pack("ii", 1, 0)
_LONGEST_HEAD = 256 * 1024
"""Bytes of a head that may come without its end. uvicorn has such a bound with h11 (64 KiB), but not with httptools."""


class _AlreadySent(web.StreamResponse):
    """Tells aiohttp that it has nothing to send, and whether the connection lives on."""

    def __init__(self, keep_alive: bool) -> None:
        super().__init__()
        self._stays_open = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> None:
        pass

    async def write_eof(self, data: bytes = b"") -> None:
        pass


def already_sent(*, keep_alive: bool) -> web.StreamResponse:
    """A response whose bytes were written to the transport directly."""
    return _AlreadySent(keep_alive)


def is_readable(sock: socket.socket) -> bool:
    """Return whether a socket has input or was closed by the other side."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    return bool(poll.poll(0))


class Connection(web.RequestHandler):
    """A connection that can ignore or hold back its input, be closed or reset, and knows when the client is gone."""

    __slots__ = (
        "_connected",
        "_failed",
        "_gone",
        "_halted",
        "_head_size",
        "_held",
        "_ignoring",
        "_lost",
        "_payload",
        "_requests",
        "_writable",
        "died",
        "full",
        "half_closed",
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
        self.half_closed = False
        """The client sends nothing more."""
        self.died = False
        """The server crashed: what it had read is not served any more."""
        self._gone: asyncio.Future[None] | None = None
        self._lost = False
        self._ignoring = False
        self._requests = RequestFilter()
        self._halted = False
        self._head_size = 0
        self._payload: Any = None
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

    async def start(self) -> None:
        """Serve requests; one that was read in the moment in which the connection was lost is let go.

        aiohttp's protocol has then forgotten how to make a request of it.
        """
        try:
            await super().start()
        except TypeError:
            if getattr(self, "_request_factory", True) is not None:
                raise

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake all waiters; a program that the client started keeps running, as on the real server."""
        self._lost = True
        super().connection_lost(exc)
        for waiting in (self._gone, self._writable):
            if waiting is not None and not waiting.done():
                waiting.set_result(None)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp never keeps the connection
        """Keep a half-closed connection for the answer to a GET, for which uvicorn is fast enough."""
        self.half_closed = True
        waiting = [message for message, _ in getattr(self, "_messages", ())]
        return any(getattr(message, "method", None) in ("GET", "HEAD") for message in [*waiting, self.message])

    def data_received(self, data: bytes) -> None:
        if self._ignoring:
            return
        if self._held is not None:
            self._held += data
            return
        self._receive(data)

    def _receive(self, data: bytes) -> None:
        passed = self._requests.pass_on(data)
        if data and not passed:
            return  # without data, aiohttp asks for requests that it has not parsed yet
        messages: Any = getattr(self, "_messages", ())
        before = len(messages)
        super().data_received(passed)
        if len(messages) > before:
            self._payload = messages[-1][1]
            self._head_size = 0
        elif not messages and (self._payload is None or self._payload.is_eof()):
            self._head_size += len(passed)
            if self._head_size > _LONGEST_HEAD:
                self._refuse_head()

    def _refuse_head(self) -> None:
        if self.transport is not None and self.message is None:
            self.transport.write(invalid_request())
        self.ignore_input()
        self.finish()

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

    def _process_keepalive(self) -> None:
        """Close an idle connection, unless its next request has arrived and only waits to be read.

        To close it then would reset it, and the client would lose a request that it sent in time. On a busy loop many
        milliseconds lie between the last look for input and this call.
        """
        sock = self._socket()
        if sock is not None and is_readable(sock):
            self._keepalive_handle = None  # the next answer starts the clock again
        else:
            super()._process_keepalive()

    def force_close(self) -> None:
        """Close at once: asyncio closes a socket one turn later, and until then clients would still use it."""
        if self.transport is not None and self._socket() is not None:
            with contextlib.suppress(OSError):  # the client has just reset it
                self.transport.write_eof()
        super().force_close()

    def _socket(self) -> socket.socket | None:
        """The socket, unless it is closed or there is none (in-memory transports)."""
        if self.transport is None or self.transport.is_closing():
            return None
        sock: socket.socket | None = self.transport.get_extra_info("socket")
        return sock

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

    @property
    def all_sent(self) -> bool:
        """False if a client does not read answers to earlier requests, so that the next has to wait."""
        return self.transport is None or not self.transport.get_write_buffer_size()

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
