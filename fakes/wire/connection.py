"""One client connection: aiohttp's protocol, behaving like uvicorn's.

It can be broken on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from aiohttp import web

from sfusion_tools._loops import resolve
from sfusion_tools.sandbox.public_transport import is_readable

from .message import Answer, invalid_request, render_head

_REQUEST_LINE = re.compile(rb"[^\r\n]* HTTP/1\.[01](?:\r\n|$)")
_FOLDED = re.compile(rb"\r\n[ \t]+")
_FOLDED_MEANING = re.compile(
    rb"\r\n(?:connection|content-length|transfer-encoding|upgrade):[^\r\n]*\r\n[ \t]", re.IGNORECASE
)
"""A header that neither parser accepts in several lines."""
_ODD_NAME = re.compile(
    rb"(?!(?:connection|content-length|transfer-encoding|upgrade) )[^:\s]+ [^:\t\r\n]*:",
    re.IGNORECASE,
)
"""A space in the name or behind it, which makes it one that nobody knows. uvicorn refuses it only
in headers that say where a request ends."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_LONGEST_LENGTH = 18
"""Digits; aiohttp refuses longer ones."""
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_CLOSE = re.compile(rb"\r\n(?i:connection):[ \t]*close[ \t]*\r\n")
_END_OF_HEAD = b"\r\n\r\n"


class _Head(NamedTuple):
    """What the head of a request says."""

    passed: bytes
    """As aiohttp wants it."""
    body: int
    """Bytes of the body, if they are known."""
    known: bool
    """The body has a length, or is not there."""
    last: bool


class RequestFilter:
    """Follows the requests of a connection and rewrites their heads.

    What comes after the last request is dropped. The filter gives up, and passes on everything as
    it comes, after a head that arrives in parts or a body without a length.
    """

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current body that are still to come."""
        self._last = False
        self._gave_up = False

    def pass_on(self, data: bytes) -> bytes:
        """Return what aiohttp is to read of it."""
        passed: list[bytes] = []
        at = 0
        while at < len(data) and not self._gave_up:
            if not self._left:
                if self._last:
                    return b"".join(passed)
                head, at = self._head(data, at)
                passed.append(head)
            body = data[at : at + self._left]
            at += len(body)
            self._left -= len(body)
            passed.append(body)
        return b"".join([*passed, data[at:]])

    def _head(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Read the head of the request that begins here.

        Return it as aiohttp wants it, and where it ends.
        """
        start = at
        while data[start : start + 1] in (b"\r", b"\n"):
            start += 1
        empty_line = data.find(_END_OF_HEAD, start)
        end = empty_line + len(_END_OF_HEAD)
        head = _head_of(data[start:end]) if empty_line >= 0 else None
        if head is None:
            self._gave_up = True
            return b"", at

        self._left = head.body
        self._gave_up = not head.known
        self._last = head.last
        return head.passed, end


def _read_head(raw: bytes) -> _Head | None:
    """Return what a head says; None if it is not one."""
    if not _REQUEST_LINE.match(raw):
        return None
    head = lenient(raw)
    length = _LENGTH.search(head)
    digits = length[1] if length is not None else b"0"
    known = _CHUNKED.search(head) is None and len(digits) <= _LONGEST_LENGTH
    # As uvicorn sees it: "Close" is not "close", and HTTP/1.0 has no keep-alive.
    last = _CLOSE.search(head) is not None or b" HTTP/1.0\r\n" in head
    return _Head(passed=head, body=int(digits) if known else 0, known=known, last=last)


_LONGEST_KNOWN = 2048
"""Bytes of a head that is remembered (chosen: longer than those of the usual clients)."""
_MOST_KNOWN = 256
"""Heads that are remembered (chosen: the next requests of a client mostly have the same).

Reading one anew takes 82,000 instructions, looking it up 13,000.
"""
_known_head = lru_cache(maxsize=_MOST_KNOWN)(_read_head)


def _head_of(raw: bytes) -> _Head | None:
    """Return what a head says, remembered from an earlier request if it was the same."""
    if len(raw) > _LONGEST_KNOWN:
        return _read_head(raw)
    return _known_head(raw)


def lenient(head: bytes) -> bytes:
    """Rewrite a head that uvicorn accepts and aiohttp does not.

    Such a head has no Host or several, a header of several lines, or a space in the name of one.
    """
    if _FOLDED_MEANING.search(head):
        return head
    unfolded = _FOLDED.sub(b" ", head.removesuffix(_END_OF_HEAD))
    first, *lines = unfolded.split(b"\r\n")
    hosts = []
    others = []
    for line in lines:
        if line[:5].lower() == b"host:":
            hosts.append(line)
        elif not _ODD_NAME.match(line):
            others.append(line)

    is_folded = head.count(b"\r\n") != len(lines) + 2
    is_odd = len(others) + len(hosts) != len(lines)
    if len(hosts) == 1 and not is_odd and not is_folded:
        return head
    host = hosts[0] if hosts else b"Host: "
    return b"\r\n".join([first, *others, host, b"", b""])


class AlreadySent(web.StreamResponse):
    """A response whose bytes were written to the transport directly.

    It says whether the connection lives on.
    """

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._stays_open = keep_alive

    @property
    def keep_alive(self) -> bool:
        return self._stays_open

    async def prepare(self, request: web.BaseRequest) -> None:
        pass

    async def write_eof(self, data: bytes = b"") -> None:
        pass


_LONGEST_HEAD = 256 * 1024
"""Bytes of a head that may come without its end (chosen).

uvicorn has such a bound with h11 (64 KiB), but not with httptools.
"""
_LINGER_ZERO = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which closing a socket resets its connection."""


class Connection(web.RequestHandler):
    """A connection that can ignore or hold back its input, and be closed or reset.

    It knows when the client is gone.
    """

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
        self.lost = False
        """The client is gone."""
        self._ignoring = False
        self._tunnel: Callable[[bytes], None] | None = None
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
        """Serve requests.

        One that was read in the moment in which the connection was lost is let go: aiohttp's
        protocol has then forgotten how to make a request of it.
        """
        try:
            await super().start()
        except TypeError:
            if getattr(self, "_request_factory", True) is not None:
                raise

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wake all waiters.

        A program that the client started keeps running, as on the real server.
        """
        self.lost = True
        super().connection_lost(exc)
        for waiting in (self._gone, self._writable):
            if waiting is not None:
                resolve(waiting, None)

    def eof_received(self) -> bool:  # type: ignore[override] # aiohttp never keeps the connection
        """Keep a half-closed connection for the answer to a GET.

        For these uvicorn is fast enough.
        """
        self.half_closed = True
        if self._tunnel is not None:
            return False
        messages = [message for message, _ in getattr(self, "_messages", ())]
        messages.append(self.message)
        return any(getattr(message, "method", None) in ("GET", "HEAD") for message in messages)

    def data_received(self, data: bytes) -> None:
        if self._ignoring:
            return
        if self._tunnel is not None:
            self._tunnel(data)
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
        if self.message is None:
            self.write(invalid_request())
        self.ignore_input()
        self.finish()

    def gone(self) -> asyncio.Future[None]:
        """A future that is done when the client is gone."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self.lost:
                self._gone.set_result(None)
        return self._gone

    def _process_keepalive(self) -> None:
        """Close an idle connection, unless its next request has arrived and only waits to be read.

        To close it then would reset it, and the client would lose a request that it sent in time.
        On a busy loop many milliseconds lie between the last look for input and this call.
        """
        sock = self._socket()
        if sock is not None and is_readable(sock):
            self._keepalive_handle = None  # the next answer starts the clock again
        else:
            super()._process_keepalive()

    def force_close(self) -> None:
        """Close at once.

        asyncio closes a socket one turn later, and until then clients would still use it.
        """
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
        if self._writable is not None:
            resolve(self._writable, None)

    @property
    def all_sent(self) -> bool:
        """False if a client does not read answers to earlier requests, and the next must wait."""
        return self.transport is None or not self.transport.get_write_buffer_size()

    async def drained(self) -> None:
        """Wait until the client has read enough for more to be written."""
        while self.full and not self.lost:
            self._writable = asyncio.get_running_loop().create_future()
            await self._writable

    def tunnel(self, receive: Callable[[bytes], None]) -> None:
        """Hand over whatever comes in from now on: it is not HTTP any more."""
        self._tunnel = receive

    def ignore_input(self) -> None:
        """Discard whatever comes in from now on."""
        self._ignoring = True
        self._held = None

    def hold_input(self) -> None:
        """Keep what comes in until ``release_input``."""
        self._held = bytearray()

    def release_input(self) -> None:
        """Handle what was held back."""
        held = self._held
        self._held = None
        if held and not self.lost and not self._ignoring:
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

    def write(self, data: bytes) -> None:
        """Send, unless the connection was lost."""
        if self.transport is not None:
            self.transport.write(data)

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
        """Answer as uvicorn does.

        aiohttp calls this for bytes that are not HTTP, and for a bug of ours.
        """
        answer = invalid_request()
        if status >= 500 and isinstance(exc, Exception):
            failure = self._failed(exc)
            answer = render_head(failure) + failure.body
        self.write(answer)
        return AlreadySent(keep_alive=False)
