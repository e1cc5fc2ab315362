"""The server that a proxy forwards to.

Its address, the headers that pass, and its answers as they stream.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sfusion_tools.hosts import is_this_machine
from sfusion_tools.sandbox.endpoints import basic_auth, redact

from ..errors import BadUpstream, BrokenStream
from ..wire.message import Headers

_MEANT = "an upstream is the address of an HTTP server, such as http://127.0.0.1:8080"
_ROUTES = ("/run_code", "/run_jupyter")
_EVERYWHERE = frozenset({"0.0.0.0", "::", "localhost"})
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Upstream:
    """A parsed upstream URL."""

    origin: str
    """``http://host:port``, without a user."""
    base: str = field(repr=False)
    """Prefix of every path, without a slash at the end."""
    query: str = field(repr=False)
    """Prefix of every query."""
    authorization: str | None = field(repr=False)
    """The Authorization header made from the URL's user and password."""
    shown: str
    """The URL without secrets."""
    host: str
    port: int

    def url(self, target: str) -> str:
        """The full URL for a request's target, which is kept as it was written."""
        path, mark, query = target.partition("?")
        if self.query:
            query = f"{self.query}&{query}" if query else self.query
            mark = "?"
        return f"{self.origin}{self.base}{path}{mark}{query}"

    def is_left_by(self, target: str) -> bool:
        """True if a target climbs.

        That could lead out of the prefix to what the proxy's credentials open.
        """
        path = unquote(unquote(target.partition("?")[0])).replace("\\", "/")
        return bool(self.base) and ".." in path.split("/")

    def is_at(self, host: str, port: int) -> bool:
        """True if this is the server on this address of this machine, going by names."""
        if self.port != port:
            return False
        everywhere = host in _EVERYWHERE or self.host in _EVERYWHERE
        return self.host == host or (everywhere and is_this_machine(self.host))


def read_upstream(url: object) -> Upstream:
    """Read a URL, with or without the ``/run_code`` of tool configs."""
    if not isinstance(url, str) or not url.strip():
        raise BadUpstream(f"{_MEANT}; found {url!r}")
    try:
        parts = urlsplit(url.strip())
        host = parts.hostname
        port = parts.port
    except ValueError:
        raise BadUpstream(f"{_MEANT}; found {redact(url)!r}, which is not a URL") from None
    if parts.scheme not in _PORTS or not host:
        raise BadUpstream(f"{_MEANT}; found {redact(url)!r}")

    base = parts.path.rstrip("/")
    for route in _ROUTES:
        base = base.removesuffix(route)
    base = base.rstrip("/")

    named = f"[{host}]" if ":" in host else host
    origin = f"{parts.scheme}://{named}"
    if port is not None:
        origin += f":{port}"
    return Upstream(
        origin=origin,
        base=base,
        query=parts.query,
        authorization=basic_auth(parts),
        shown=redact(origin + base),
        host=host,
        port=port if port is not None else _PORTS[parts.scheme],
    )


HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"}
    | {"te", "trailer", "transfer-encoding", "upgrade"}
)
# The length follows from the body, expectations are answered here, and the token is for the proxy.
_NOT_SENT = HOP_BY_HOP | {"host", "content-length", "expect", "x-sfusion-token", "via"}
_LINKS = frozenset({"location", "content-location"})


def forwarded(
    headers: Mapping[str, str], *, via: str, ours: Mapping[str, str], drop: str = ""
) -> CIMultiDict[str]:
    """The headers of a forwarded request.

    End-to-end ones in their order, then ``ours``, replacing equal names.
    """
    replaced = {name.lower() for name in ours}
    skip = _NOT_SENT | _words(headers.get("Connection", "")) | replaced | {drop}
    sent: CIMultiDict[str] = CIMultiDict()
    spelt: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower not in skip:
            # aiohttp drops all but the last of equal names that differ in case.
            sent.add(spelt.setdefault(lower, name), value)
    for name, value in ours.items():
        sent.add(name, value)
    before = headers.get("Via")
    sent.add("via", f"{before}, {via}" if before else via)
    return sent


@dataclass(slots=True)
class RelayedHead:
    """The head of an answer of the upstream, as it is relayed."""

    headers: list[tuple[str, str]] = field(default_factory=list)
    """In their order, with those about the framing of the body in place."""
    length: int | None = None
    """Bytes of the body, if known."""
    chunked: bool = False


def relayed(raw: Iterable[tuple[bytes, bytes]], upstream: Upstream, here: str) -> RelayedHead:
    """Read the head of an answer; links to the upstream are changed to lead ``here``."""
    head = RelayedHead()
    named: set[str] = set()
    for raw_name, raw_value in raw:
        name = raw_name.decode("latin-1")
        value = raw_value.decode("latin-1")
        lower = name.lower()
        if lower == "content-length":
            head.length = int(value) if value.isdecimal() else None
        elif lower == "transfer-encoding":
            head.chunked = True
        elif lower == "connection":
            named |= _words(value)
            continue
        elif lower in HOP_BY_HOP:
            continue
        elif lower in _LINKS:
            value = _through_proxy(value, upstream, here)
        head.headers.append((name, value))

    for name in named:
        head.headers = without_header(head.headers, name)
    if head.chunked and head.length is not None:
        head.length = None
        head.headers = without_header(head.headers, "content-length")
    return head


def without_header(headers: Headers, name: str) -> list[tuple[str, str]]:
    """Return the headers but those of this name, which is in lower case."""
    return [(key, value) for key, value in headers if key.lower() != name]


_NOT_NAMES = frozenset({"", "close", "content-length", "transfer-encoding"})


def _words(value: str) -> set[str]:
    """Return the headers that a Connection header names as its own."""
    return {word.strip().lower() for word in value.split(",")} - _NOT_NAMES


def _through_proxy(link: str, upstream: Upstream, here: str) -> str:
    """Turn a link to the upstream into one through the proxy, which a redirect would bypass."""
    for start in (upstream.origin + upstream.base, upstream.base):
        rest = link.removeprefix(start)
        if not start or rest == link or rest[:1] not in ("", "/", "?", "#"):
            continue
        rest = rest or "/"
        return f"http://{here}{rest}" if start.startswith(upstream.origin) else rest
    return link


_KEEP_ALIVE = 4.0
"""Seconds after which an idle connection is dropped.

uvicorn closes idle connections after 5 seconds, and a request must not hit a closing one.
"""
_CONNECT = 10.0
"""Seconds for a connection to the upstream (chosen)."""
_LONGEST_LINE = 1 << 20
"""Bytes of a header of the upstream (chosen: a proxy should not refuse what a client accepts)."""
_MOST_HEADERS = 10_000
"""Headers of an answer of the upstream (chosen for the same reason)."""
_NOTHING_ADDED = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class UpstreamFailed(Exception):
    """The upstream did not answer; the message describes what happened."""


_SENT: ContextVar[Callable[[], None] | None] = ContextVar("_SENT", default=None)


class _Connector(aiohttp.TCPConnector):
    """Calls back once a request has its connection, right before the request is written."""

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> aiohttp.connector.Connection:
        connection = await super().connect(req, traces, timeout)
        sent = _SENT.get()
        if sent is not None:
            # Perhaps twice for a GET, when a pooled connection turns out to be closed; never for
            # work.
            sent()
        return connection


class Forwarder:
    """Sends requests to an upstream."""

    def __init__(self, upstream: Upstream, *, trust_env: bool = False) -> None:
        self.upstream = upstream
        self._trust_env = trust_env
        self._session: aiohttp.ClientSession | None = None
        self._busy = 0
        self._idle = asyncio.Event()

    @property
    def opened(self) -> bool:
        return self._session is not None

    def open(self) -> None:
        """Create the session, on the running loop."""
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
        session = self._session
        self._session = None
        if session is not None:
            await session.close()

    async def retire(self) -> None:
        """Close once the requests under way have been answered."""
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
        """Forward a request and return the head of the answer.

        ``sent`` is called when the request is being written.
        """
        session = self._session
        upstream = self.upstream
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
    """An answer of the upstream: the head has arrived, the body may still be arriving."""

    def __init__(
        self, response: aiohttp.ClientResponse, upstream: Upstream, done: Callable[[], None]
    ) -> None:
        self.response = response
        self.upstream = upstream
        self._done = done
        self._gone: asyncio.Future[None] | None = None
        self._released = False
        self.failed: Callable[[str], None] | None = None
        """Called when the body ends too early."""

    def at_hand(self) -> bytes | None:
        """The whole body, if all of it has arrived already."""
        content = self.response.content
        return content.read_nowait(-1) if content.is_eof() else None

    def release(self, _: object = None) -> None:
        """Give the connection back; one with an unfinished body is closed."""
        if self._released:
            return
        self._released = True
        if self._gone is not None:
            self._gone.remove_done_callback(self.release)
        self.response.close()
        self._done()

    def until(self, gone: asyncio.Future[None] | None) -> None:
        """Prepare for streaming, and release the answer when ``gone`` is done at the latest."""
        if gone is not None:
            self._gone = gone
            gone.add_done_callback(self.release)
        # On an invalid chunk aiohttp 3.14 closes the connection without failing the body that is
        # being read.
        connection = self.response.connection
        if connection is None:
            return
        closed = getattr(connection.protocol, "closed", None)
        if closed is not None:
            closed.add_done_callback(self._closed)

    def _closed(self, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            closed.exception()  # mark it as retrieved; the reader gets it elsewhere
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
    """Describe an error without quoting the request: aiohttp's own texts may contain URLs."""
    match error:
        case aiohttp.ClientConnectorDNSError():
            return "cannot be reached: its name cannot be resolved"
        case aiohttp.ClientConnectorCertificateError():
            return "cannot be reached: its certificate is not trusted"
        case aiohttp.ClientSSLError():
            return "cannot be reached: the TLS handshake failed"
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
    # asyncio puts the address into its errors; the errno is enough to know what happened.
    return os.strerror(error.errno).lower() if error.errno else "connection lost"
