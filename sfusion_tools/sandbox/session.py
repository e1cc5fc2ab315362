"""The HTTP session of an event loop, shared by all its clients and closed when the loop ends.

Some trainers make a new tool for every trajectory; connections outlive them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from weakref import WeakSet

import aiohttp

from sfusion_tools._loops import PerLoop, before_loop_ends
from sfusion_tools._version import __version__

IDLE_SECONDS = 4.0
"""Sandbox Fusion closes idle connections after 5 s; dropping them first avoids reusing one that is closing."""


class _Opened:
    def __init__(self) -> None:
        self.users: WeakSet[object] = WeakSet()
        self.guard: AsyncGenerator[None] | None = None
        self.session = aiohttp.ClientSession(
            # The limiter bounds how many are in flight, the client how long each may take.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={
                "User-Agent": f"sfusion/{__version__}",
                "Accept-Encoding": "identity",
                "Content-Type": "application/json",
            },
            cookie_jar=aiohttp.DummyCookieJar(),
        )


_opened = PerLoop(_Opened)


async def session_for(user: object) -> aiohttp.ClientSession:
    """Return the running loop's session; open it on first use."""
    opened = _opened.get()
    if opened.guard is None:
        opened.guard = before_loop_ends(_at_loop_end)
        await anext(opened.guard)
    opened.users.add(user)
    return opened.session


async def leave(user: object) -> None:
    """Stop using the running loop's session; the last user to leave closes it."""
    opened = _opened.peek()
    if opened is None:
        return
    opened.users.discard(user)
    if not opened.users:
        _opened.pop()
        if opened.guard is not None:
            await opened.guard.aclose()  # finds nothing left to close
        await opened.session.close()


async def _at_loop_end() -> None:
    opened = _opened.pop()
    if opened is not None:
        await opened.session.close()
