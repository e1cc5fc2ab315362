"""The transport over aiohttp's ClientSession.

It uses public names only, and so works with every version of aiohttp that is allowed.
"""

from __future__ import annotations

import asyncio
import io
import os
import re
import select
import socket
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from functools import cached_property, lru_cache
from typing import Any, Self
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, WeakSet

import aiohttp
from multidict import CIMultiDict, istr
from yarl import URL

from sfusion_tools._version import __version__
from sfusion_tools.outcome import Outcome
from sfusion_tools.runtime import LoopResource, LoopScope
from sfusion_tools.sandbox.answer import Response, TransportError
from sfusion_tools.sandbox.endpoints import Address, basic_auth, redact
from sfusion_tools.sandbox.retry import RETRIED_STATUSES

CONNECT_SECONDS = 10.0
"""Limit for connecting, or half an attempt's time if that is less, so that a slow connect is
reported as such. Chosen: long enough for a few lost packets."""

IDLE_SECONDS = 4.0
"""Sandbox Fusion (uvicorn) closes idle connections after 5 s; dropping them first avoids reusing
one that is closing."""

_HEADERS = {
    "User-Agent": f"sfusion/{__version__}",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "Accept": "*/*",
}
_OF_THE_BODY = ("Content-Length", "Transfer-Encoding")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AT_ONCE = 2**16
"""Bytes of a body that the kernel has room for when nothing else waits to be sent."""
_LENGTH = istr("Content-Length")
_ENCODING = istr("Content-Encoding")
_URL = re.compile(r"\w+://[^\s'\"]+")


class PublicTransport(LoopResource):
    """One loop's connections, shared by all its clients.

    Some trainers make a new tool for every trajectory. Requests go through a ClientSession; nothing
    is sent or read on a connection after an attempt has ended.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._in_use = 0
        self._users: WeakSet[object] = WeakSet()
        self._connector = _Connector(loop)

    @classmethod
    def of(cls, scope: LoopScope, user: object) -> Self:
        """Return the loop's transport, opened on first use.

        It stays open at least until the user leaves.
        """
        transport = scope.get(cls, lambda: cls(scope.loop))
        transport._users.add(user)
        return transport

    @classmethod
    async def leave(cls, scope: LoopScope, user: object) -> None:
        """Stop using the loop's transport; the last user to leave closes it."""
        transport = dict(scope.items()).get(cls)
        if not isinstance(transport, cls):
            return
        transport._users.discard(user)
        if not transport._users and not transport._in_use:
            scope.drop(transport)
            await transport.aclose()

    @cached_property
    def _session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(connector=self._connector, cookie_jar=aiohttp.DummyCookieJar())

    async def send(self, address: Address, body: bytes, seconds: float, most: int) -> Response:
        """Post a body and return the answer, with about ``most`` bytes at most.

        Raise nothing but TransportErrors.
        """
        connect = min(CONNECT_SECONDS, seconds / 2)
        self._in_use += 1
        try:
            async with asyncio.timeout(seconds):
                timeout = _timeout(connect, address.proxy is not None)
                return await self._exchange(address, body, timeout, most)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise our_error(error, address, seconds, connect) from error
        finally:
            self._in_use -= 1

    async def _exchange(
        self, address: Address, body: bytes, connect: aiohttp.ClientTimeout, most: int
    ) -> Response:
        target, headers, proxy, tunnel = route(address)
        used: list[asyncio.Transport] = []
        _used.set(used)
        status = 0
        whole = False
        try:
            response = await self._session.post(
                target,
                # aiohttp warns of large bytes.
                data=body if len(body) <= _AT_ONCE else io.BytesIO(body),
                headers=headers,
                proxy=proxy,
                proxy_headers=tunnel,
                allow_redirects=False,
                timeout=connect,
            )
            try:
                status = response.status
                text, whole = await read_body(response.content, status, response.headers, most)
            finally:
                if not whole:
                    response.close()  # leaving its context would wait until all was sent
        finally:
            of_failed = len(body) if status != 200 else 0
            for transport in used:
                if unsent(transport, of_failed) and not self._loop.is_closed():
                    transport.abort()
            used.clear()  # the context may live for long
        return Response(status, response.headers, text, whole)

    async def aclose(self) -> None:
        await self._connector.close()

    def abandon(self) -> None:
        self.forget()
        # With its loop closed there is nothing to wait for: the first step marks the connector as
        # closed.
        with suppress(StopIteration, RuntimeError):
            self._connector.close().__await__().send(None)

    def forget(self) -> None:
        self._connector.sockets.close()


_used: ContextVar[list[asyncio.Transport]] = ContextVar("_used")
"""The connections of the request that this task is sending."""


class _Connector(aiohttp.TCPConnector):
    """Connects, and hands out no idle connection on which something came unasked."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.sockets = _Sockets()
        self._own_loop = loop
        # The limiter bounds how many are in flight, the client how long each may take.
        super().__init__(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=self.sockets)

    async def connect(self, *args: Any, **options: Any) -> Any:
        sockets = self.sockets
        while True:
            before = sockets.made
            connection = await super().connect(*args, **options)
            protocol = connection.protocol
            transport = connection.transport
            assert protocol is not None
            # What came while nobody waited, and was perhaps not read yet, is no answer to this
            # request.
            sock = None if transport is None else transport.get_extra_info("socket")
            news = len(protocol) or (sock is not None and is_readable(sock))
            if sockets.made != before or not news:
                used = _used.get(None)
                if transport is not None and used is not None:
                    used.append(transport)
                return connection
            connection.close()

    @property
    def closed(self) -> bool:
        """True also if the loop was closed.

        A session is as closed as its connector, and complains if it is not.
        """
        return super().closed or self._own_loop.is_closed()


class _Sockets:
    """Makes the sockets of a connector."""

    def __init__(self) -> None:
        self.made = 0
        self._open: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
        """The sockets, with the inode of each.

        uvloop closes a descriptor without telling, and its number may be another file's.
        """

    def __call__(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        sock = socket.socket(family, kind, protocol)
        self.made += 1
        self._open[sock] = os.fstat(sock.fileno()).st_ino
        return sock

    def close(self) -> None:
        for sock, inode in list(self._open.items()):
            try:
                is_ours = os.fstat(sock.fileno()).st_ino == inode
            except OSError:
                is_ours = False
            if is_ours:
                sock.close()
            else:
                sock.detach()


def unsent(transport: asyncio.Transport, of_failed: int) -> bool:
    """True if something waits to be sent, or may do so.

    Under TLS nobody knows; after a large failed request it may. A server may answer, or time be up,
    before all was sent; a connection that is closed stays open until it is.
    """
    try:
        if transport.get_write_buffer_size():
            return True
    except AttributeError:  # of a closed TLS connection
        return False
    return of_failed > _AT_ONCE and transport.get_extra_info("sslcontext") is not None


def is_readable(sock: socket.socket) -> bool:
    """True if there is something to read, or the end, that the loop has perhaps not seen yet."""
    if not hasattr(select, "poll"):  # as on Windows
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


@lru_cache(maxsize=64)
def route(address: Address) -> tuple[URL, CIMultiDict[str], URL | None, CIMultiDict[str]]:
    """Return what the requests to an address share.

    These are target, headers, proxy, and the headers for a tunnel.
    """
    headers = CIMultiDict(_HEADERS)
    for name, value in address.headers:
        headers[name] = value
    for name in _OF_THE_BODY:
        headers.pop(name, None)
    login = basic_auth(urlsplit(address.url))
    if login is not None:
        if "Authorization" in headers:
            raise ValueError(
                "the address contains a login and the headers an Authorization; a request has only "
                "one"
            )
        headers["Authorization"] = login
    for name, value in headers.items():
        if _CONTROL.search(name) or _CONTROL.search(value):
            raise ValueError("a header contains a control character")
    target = URL(address.url).with_user(None)
    proxy = None
    tunnel = CIMultiDict[str]()
    if address.proxy is not None:
        proxy = URL(address.proxy).with_user(None)
        # The connector would add this Host, and not find the connection again by what it knew
        # without it.
        tunnel["Host"] = headers.get("Host", target.host_port_subcomponent or "")
        tunnel["User-Agent"] = headers["User-Agent"]
        login = basic_auth(urlsplit(address.proxy))
        if login is not None:
            tunnel["Proxy-Authorization"] = login
            if target.scheme == "http":
                headers["Proxy-Authorization"] = login
    return target, headers, proxy, tunnel


async def read_body(
    payload: aiohttp.StreamReader, status: int, headers: Mapping[str, str], most: int
) -> tuple[bytes, bool]:
    """Return the body, and whether it is whole."""
    size = headers.get(_LENGTH)
    if size is not None and status == 200 and _ENCODING not in headers:
        if int(size) > most:
            return b"", False
        return await payload.read(), True
    parts: list[bytes] = []
    try:
        async for part in payload.iter_any():
            parts.append(part)
            most -= len(part)
            if most < 0:
                return b"".join(parts), False
    except aiohttp.ClientPayloadError:
        if status == 200:
            raise
        return b"".join(parts), False
    return b"".join(parts), True


@lru_cache(maxsize=64)
def _timeout(seconds: float, proxied: bool) -> aiohttp.ClientTimeout:
    # Behind a proxy, connecting is more than opening a socket; without one, use the cheaper timer.
    return aiohttp.ClientTimeout(total=None, **{"connect" if proxied else "sock_connect": seconds})


def our_error(error: Exception, address: Address, seconds: float, connect: float) -> TransportError:
    """Return our error for one of aiohttp or of the system."""
    match error:
        case aiohttp.ConnectionTimeoutError():
            return _not_connected(address, f" within {connect:g} s")
        case aiohttp.ClientConnectorError():
            return _not_connected(address, f": {_reason(error)}")
        case aiohttp.ClientHttpProxyError():
            why = f": the proxy answered {error.status} {error.message}"
            return _not_connected(address, why, transient=error.status in RETRIED_STATUSES)
        case TimeoutError():
            why = f"no complete answer within {seconds:g} s"
            return TransportError(Outcome.TRANSPORT_TIMEOUT, why)
        case aiohttp.ClientConnectionError() | OSError():
            return TransportError(Outcome.UNREACHABLE, f"the connection was lost: {_reason(error)}")
        case aiohttp.ClientPayloadError():
            why = f"the answer broke off or is garbled: {_reason(error)}"
            return TransportError(Outcome.BAD_RESPONSE, why)
    why = f"not a valid HTTP response: {_reason(error)}"
    return TransportError(Outcome.BAD_RESPONSE, why, transient=False)


def _not_connected(address: Address, why: str, *, transient: bool = True) -> TransportError:
    text = f"no connection to {address.label}{why}"
    return TransportError(Outcome.UNREACHABLE, text, may_have_run=False, transient=transient)


def _reason(error: BaseException) -> str:
    # aiohttp quotes the URL, which may contain a password or a token.
    text = _URL.sub(lambda found: redact(found[0]), str(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
