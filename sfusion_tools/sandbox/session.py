"""The HTTP session of an event loop, shared by all its clients and closed when the loop ends.

Some trainers make a new tool for every trajectory; connections outlive them.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any
from weakref import WeakSet, ref

import aiohttp

from sfusion_tools._version import __version__
from sfusion_tools.deadlines import Deadlines
from sfusion_tools.runtime import LoopResource, LoopScope

IDLE_SECONDS = 4.0
"""Sandbox Fusion closes idle connections after 5 s; dropping them first avoids reusing one that is closing."""


class HttpSession(LoopResource):
    """One loop's session, and the time limits of the attempts on it."""

    def __init__(self, deadlines: Deadlines) -> None:
        self.deadlines = deadlines
        self.in_use = 0
        """The attempts that are using it now."""
        self._users: dict[int, ref[object]] = {}
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.client = aiohttp.ClientSession(
            # The limiter bounds how many are in flight, the client how long each may take.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS, socket_factory=self._socket),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={
                "User-Agent": f"sfusion/{__version__}",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
        )

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

    async def aclose(self) -> None:
        await self.client.close()

    def abandon(self) -> None:
        self.forget()
        # With its loop closed there is nothing to wait for: the first step marks the session as closed.
        closing = self.client.close()
        with suppress(StopIteration, RuntimeError):
            closing.send(None)
        closing.close()

    def forget(self) -> None:
        for sock in list(self._sockets):
            sock.close()

    def _socket(self, address: Any) -> socket.socket:
        family, kind, protocol, *_ = address
        sock = socket.socket(family, kind, protocol)
        self._sockets.add(sock)
        return sock
