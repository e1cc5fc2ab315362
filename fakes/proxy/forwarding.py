"""Sending requests on to one server over pooled connections, and giving its answers piece by piece."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sfusion.fakes.proxy.upstream import Upstream
from sfusion.fakes.wire import BrokenStream

# uvicorn closes idle connections after 5 seconds: ours must be given up before, or a request meets the closing.
_KEEP_ALIVE = 4.0
_CONNECT = 10.0
_LONGEST_LINE = 1 << 20
_MOST_HEADERS = 10_000
_NOTHING_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class UpstreamFailed(Exception):
    """The server behind did not answer; the message says in words what was seen."""


_SENT: ContextVar[Callable[[], None] | None] = ContextVar("_SENT", default=None)


class _Connector(aiohttp.TCPConnector):
    """Tells who asked for a connection when there is one: what comes next is the writing of the request."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        sent = _SENT.get()
        if sent is not None:
            sent()  # for a GET perhaps twice, when a kept connection turns out to be closed; never for work
        return connection


class Forwarder:
    """Sends requests to one server."""

    def __init__(self, upstream: Upstream, *, trust_env: bool = False) -> None:
        self.upstream = upstream
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None
        self._busy = 0
        self._idle = asyncio.Event()

    @property
    def opened(self) -> bool:
        """Can it send?"""
        return self._session is not None

    def open(self) -> None:
        """Get ready, on the running loop."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=_KEEP_ALIVE),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=_NOTHING_ADDED,
            auto_decompress=False,
            trust_env=self._trust_env,
            max_line_size=_LONGEST_LINE,
            max_field_size=_LONGEST_LINE,
            max_headers=_MOST_HEADERS,
        )

    async def close(self) -> None:
        """Drop all connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def retire(self) -> None:
        """Take no more requests, and drop the connections once those under way are answered."""
        try:
            while self._busy:
                self._idle.clear()
                await self._idle.wait()
        finally:
            await self.close()

    async def send(
        self,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterator[bytes] | None,
        sent: Callable[[], None] | None = None,
    ) -> UpstreamReply:
        """Send a request on; gives the head of the answer. ``sent`` is called when it is on its way."""
        session, upstream = self._session, self.upstream
        if session is None:
            raise UpstreamFailed("the proxy is not running")
        self._busy += 1
        _SENT.set(sent)
        try:
            response = await session.request(
                method,
                URL(upstream.url(target), encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
            )
        except BaseException as error:
            self._done()
            if isinstance(error, aiohttp.ClientError | TimeoutError | OSError | ValueError):
                raise UpstreamFailed(f"{upstream.shown} {in_words(error)}") from error
            raise
        return UpstreamReply(response, upstream, self._done)

    def _done(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle.set()


class UpstreamReply:
    """An answer of the server behind: the head is here, the body may still be coming."""

    __slots__ = ("_done", "_gone", "_released", "failed", "response", "upstream")

    def __init__(self, response: aiohttp.ClientResponse, upstream: Upstream, done: Callable[[], None]) -> None:
        self.response = response
        self.upstream = upstream
        self._done = done
        self._gone: asyncio.Future[None] | None = None
        self._released = False
        self.failed: Callable[[str], None] | None = None
        """Told when the body breaks off."""

    def at_hand(self) -> bytes | None:
        """The whole body, when all of it has come already."""
        content = self.response.content
        return content.read_nowait(-1) if content.is_eof() else None

    def release(self) -> None:
        """The answer is no longer needed: a connection with a body under way is dropped, others are kept."""
        if not self._released:
            self._released = True
            if self._gone is not None:
                self._gone.remove_done_callback(self._left)
            self.response.close()
            self._done()

    def until(self, gone: asyncio.Future[None] | None) -> None:
        """Get ready to be streamed, and to be released at the latest when ``gone`` is done."""
        if gone is not None:
            self._gone = gone
            gone.add_done_callback(self._left)
        # aiohttp 3.14 forgets to tell a body that is being read when what came is no valid chunk; it only hangs up.
        connection = self.response.connection
        closed = getattr(connection.protocol, "closed", None) if connection is not None else None
        if closed is not None:
            closed.add_done_callback(self._hung_up)

    def _left(self, _: object) -> None:
        self.release()

    def _hung_up(self, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            closed.exception()  # it reaches the reader by other ways
        content = self.response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed"))

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self.response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = f"{self.upstream.shown} {in_words(error)}"
            if self.failed is not None and not self._released:
                self.failed(why)
            raise BrokenStream(why) from error
        if not piece:
            raise StopAsyncIteration
        return piece


def in_words(error: BaseException) -> str:
    """What went wrong, without anything of the request: aiohttp's own texts may hold URLs."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "cannot be reached: its name is not known"
        case aiohttp.ClientConnectorCertificateError():
            return "cannot be reached: its certificate is not trusted"
        case aiohttp.ClientSSLError():
            return "cannot be reached: it does not speak TLS as expected"
        case aiohttp.ClientConnectorError():
            return f"cannot be reached: {_system_words(error.os_error)}"
        case aiohttp.ConnectionTimeoutError():
            return f"cannot be reached: no connection within {_CONNECT:g} s"
        case aiohttp.ServerDisconnectedError():
            return "closed the connection without an answer"
        case aiohttp.ClientPayloadError():
            return "broke off in the middle of its answer"
        case aiohttp.ClientResponseError():
            return "answered with something that is not HTTP"
        case OSError():
            return f"broke off: {_system_words(error)}"
        case _:
            return f"did not answer ({type(error).__name__})"


def _system_words(error: OSError) -> str:
    # asyncio puts the address into its errors; the number is enough to know what happened.
    return os.strerror(error.errno).lower() if error.errno else "connection lost"
