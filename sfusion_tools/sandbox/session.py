"""The HTTP session of an event loop, shared by all its clients and closed when the loop ends.

Some trainers make a new tool for every trajectory; connections outlive them.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakSet, ref

import aiohttp
from aiohttp.http import HttpProcessingError
from multidict import CIMultiDict, CIMultiDictProxy, istr
from yarl import URL

from sfusion_tools._version import __version__
from sfusion_tools.deadlines import Deadlines
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

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.in_use = 0
        """The attempts that are using it now."""
        self._users: dict[int, ref[object]] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        # The limiter bounds how many are in flight, the client how long each may take.
        self._connector = aiohttp.TCPConnector(
            limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=partial(_socket, self._sockets)
        )
        self._prepared = lru_cache(maxsize=64)(partial(_prepare, deadlines.loop))

    @classmethod
    def of(cls, scope: LoopScope, user: object) -> HttpSession:
        """Return the loop's session, opened on first use; it stays open at least until the user leaves."""
        session = scope.get(cls, lambda: cls(Deadlines.of(scope)))
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
        while True:
            try:
                connection = await self._connector.connect(request, [], connect)
            except TimeoutError as error:
                raise aiohttp.ConnectionTimeoutError(f"Connection timeout to host {request.url}") from error
            protocol = connection.protocol
            assert protocol is not None
            if len(protocol) == 0:
                break
            connection.close()  # an answer that came while nobody waited is none to this request
        reusable = False
        try:
            transport = protocol.transport
            if transport is None or transport.is_closing():
                raise aiohttp.ClientConnectionResetError("Cannot write to closing transport")
            protocol.set_response_params(read_until_eof=True)
            transport.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            message, payload = await protocol.read()
            while 100 <= message.code < 200 and message.code != 101:
                message, payload = await protocol.read()
            status, headers = message.code, message.headers
            size = headers.get(_LENGTH)
            if size is None or status != 200 or _ENCODING in headers:
                received = Response(status, headers, *await _read(payload, status, most))
            elif int(size) > most:
                received = Response(status, headers, b"", False)
            else:
                received = Response(status, headers, await payload.read(), True)
            # A server may answer before it has read everything.
            reusable = received.whole and not transport.get_write_buffer_size()
        except HttpProcessingError as error:
            raise aiohttp.ClientResponseError(
                request.request_info, (), status=error.code, message=error.message, headers=error.headers
            ) from error
        finally:
            if reusable:
                connection.release()
            else:
                connection.close()
        return received

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
        for sock in list(self._sockets):
            sock.close()


def _socket(opened: WeakSet[socket.socket], address: Any) -> socket.socket:
    family, kind, protocol, *_ = address
    sock = socket.socket(family, kind, protocol)
    opened.add(sock)
    return sock


def _prepare(loop: asyncio.AbstractEventLoop, address: Address) -> tuple[aiohttp.ClientRequest, bytes]:
    """Return what aiohttp's connector wants to know, and the head of each request up to the length of its body."""
    proxy = None if address.proxy is None else URL(address.proxy)
    headers = CIMultiDict(_HEADERS)
    headers.update(address.headers)
    if (login := basic_auth(urlsplit(str(address.target)))) is not None:
        headers["Authorization"] = login
    request = aiohttp.ClientRequest("POST", address.target.with_user(None), headers=headers, loop=loop, proxy=proxy)
    path, headers = request.url.raw_path_qs, request.headers
    if proxy is not None and not request.is_ssl():
        path = str(request.url)
        if (login := basic_auth(urlsplit(str(proxy)))) is not None:
            headers["Proxy-Authorization"] = login
    lines = [f"{name}: {value}" for name, value in headers.items() if name.lower() not in _OF_THE_BODY]
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
