"""The HTTP session of an event loop, shared by all its clients and closed when the loop ends.

Some trainers make a new tool for every trajectory; connections outlive them.
"""

from __future__ import annotations

import asyncio
import os
import re
import select
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary, ref

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy, istr
from yarl import URL

from sfusion_tools._version import __version__
from sfusion_tools.runtime import LoopResource, LoopScope
from sfusion_tools.sandbox.endpoints import basic_auth

IDLE_SECONDS = 4.0
"""Sandbox Fusion closes idle connections after 5 s; dropping them first avoids reusing one that is closing."""

_HEADERS = {
    "User-Agent": f"sfusion/{__version__}",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "Accept": "*/*",
}
_OF_THE_BODY = frozenset({"content-length", "transfer-encoding"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AT_ONCE = 2**16
"""Bytes of a body that the kernel has room for when nothing else waits to be sent."""
_LENGTH, _ENCODING = istr("Content-Length"), istr("Content-Encoding")


class Address(NamedTuple):
    """Where requests go, and how."""

    target: URL
    proxy: str | None
    headers: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Response:
    """An answer."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes
    whole: bool
    """False if the body broke off, or is longer than was wanted."""


class HttpSession(LoopResource):
    """One loop's connections, and the time limits of the attempts on them.

    Connections, proxies, TLS and the reading of HTTP are aiohttp's. Its ``ClientSession`` is not used: requests to a
    sandbox differ in their body alone, and preparing each of them anew takes longer than all the rest.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.in_use = 0
        """The attempts that are using it now."""
        self._users: dict[int, ref[object]] = {}
        self._sockets = _Sockets()
        # The limiter bounds how many are in flight, the client how long each may take.
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=self._sockets)
        self._prepared = lru_cache(maxsize=64)(partial(_prepare, loop))

    @classmethod
    def of(cls, scope: LoopScope, user: object) -> HttpSession:
        """Return the loop's session, opened on first use; it stays open at least until the user leaves."""
        session = scope.get(cls, lambda: cls(scope.loop))
        users, number = session._users, id(user)
        if number not in users:
            users[number] = ref(user, lambda _: users.pop(number, None))
        return session

    @classmethod
    async def leave(cls, scope: LoopScope, user: object) -> None:
        """Stop using the loop's session; the last user to leave closes it."""
        session = dict(scope.items()).get(cls)
        if not isinstance(session, cls):
            return
        session._users.pop(id(user), None)
        if not session._users and not session.in_use:
            scope.drop(session)
            await session.aclose()

    async def post(self, address: Address, body: bytes, connect: aiohttp.ClientTimeout, most: int) -> Response:
        """Send a request and return its answer, with about ``most`` bytes at most.

        Failures raise aiohttp's errors, OSError or ValueError.
        """
        request, head = self._prepared(address)
        connection, protocol = await self._connected(request, connect)
        whole, failed = False, True
        transport = protocol.transport
        try:
            protocol.set_response_params(read_until_eof=True)
            if transport is not None and not transport.is_closing():
                transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            elif len(protocol) == 0:
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            message, payload = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, payload = await protocol.read()
            status, headers = message.code, message.headers
            size = headers.get(_LENGTH)
            if size is None or status != 200 or _ENCODING in headers:
                response = Response(status, headers, *await _read(payload, status, most))
            elif int(size) > most:
                response = Response(status, headers, b"", False)
            else:
                response = Response(status, headers, await payload.read(), True)
            whole, failed = response.whole, status != 200
        except HttpProcessingError as error:
            raise aiohttp.ClientResponseError(
                request.request_info, (), status=error.code, message=error.message, headers=error.headers
            ) from error
        finally:
            # A server may answer, or time be up, before all was sent; close would keep the connection until it is.
            unsent = transport is not None and _unsent(transport, len(body) if failed else 0)
            if whole and not unsent:
                connection.release()
            else:
                if transport is not None and unsent and not self._loop.is_closed():
                    transport.abort()
                connection.close()
        return response

    async def _connected(
        self, request: aiohttp.ClientRequest, connect: aiohttp.ClientTimeout
    ) -> tuple[aiohttp.connector.Connection, ResponseHandler]:
        """Return an idle connection, or a new one."""
        sockets = self._sockets
        while True:
            before = sockets.made
            try:
                connection = await self._connector.connect(request, [], connect)
            except TimeoutError as error:
                raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
            protocol = connection.protocol
            assert protocol is not None
            # What came while nobody waited, and was perhaps not read yet, is no answer to this request.
            if sockets.made != before or not (len(protocol) or _has_news(protocol.transport)):
                return connection, protocol
            connection.close()

    async def aclose(self) -> None:
        await self._connector.close()

    def abandon(self) -> None:
        self.forget()
        # With its loop closed there is nothing to wait for: the first step marks the connector as closed.
        closing = self._connector.close()
        with suppress(StopIteration, RuntimeError):
            closing.send(None)
        closing.close()

    def forget(self) -> None:
        self._sockets.close()


class _Sockets:
    """Makes the sockets of a session."""

    def __init__(self) -> None:
        self.made = 0
        self._open: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()
        """With the inode of each: uvloop closes a descriptor without telling, and its number may be another file's."""

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


def _unsent(transport: asyncio.Transport, of_failed: int) -> bool:
    """True if something waits to be sent, or may do so under TLS, where nobody knows: after a large failed request."""
    try:
        if transport.get_write_buffer_size():
            return True
    except AttributeError:  # of a closed TLS connection
        return False
    return of_failed > _AT_ONCE and transport.get_extra_info("sslcontext") is not None


def _has_news(transport: asyncio.Transport | None) -> bool:
    """True if there is something to read, or the end, that the loop has not seen yet."""
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or not hasattr(select, "poll"):  # as on Windows
        return False
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


def _prepare(loop: asyncio.AbstractEventLoop, address: Address) -> tuple[aiohttp.ClientRequest, bytes]:
    """Return what aiohttp's connector wants to know, and the head of each request up to the length of its body."""
    headers = CIMultiDict(_HEADERS)
    for name, value in address.headers:
        headers[name] = value
    if (login := basic_auth(urlsplit(str(address.target)))) is not None:
        if "Authorization" in headers:
            raise ValueError("the address contains a login and the headers an Authorization; a request has only one")
        headers["Authorization"] = login
    target, proxy, tunnel = address.target.with_user(None), None, CIMultiDict[str]()
    if address.proxy is not None:
        proxy = URL(address.proxy).with_user(None)
        # The connector would add this Host, and not find the connection again by what it knew without it.
        tunnel["Host"] = headers.get("Host", target.host_port_subcomponent or "")
        tunnel["User-Agent"] = headers["User-Agent"]
        if (login := basic_auth(urlsplit(address.proxy))) is not None:
            tunnel["Proxy-Authorization"] = login
            if target.scheme == "http":
                headers["Proxy-Authorization"] = login
    request = aiohttp.ClientRequest("POST", target, headers=headers, loop=loop, proxy=proxy, proxy_headers=tunnel)
    path = str(request.url) if proxy is not None and target.scheme == "http" else request.url.raw_path_qs
    lines = [f"{name}: {value}" for name, value in request.headers.items() if name.lower() not in _OF_THE_BODY]
    if any(_CONTROL.search(line) for line in lines):
        raise ValueError("a header contains a control character")
    return request, "\r\n".join([f"POST {path} HTTP/1.1", *lines, "Content-Length: "]).encode()


async def _read(payload: aiohttp.StreamReader, status: int, most: int) -> tuple[bytes, bool]:
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
