"""The HTTP session of an event loop: shared by all clients there, closed when the loop ends.

Tools come and go, with every trajectory in some trainers; the connections need not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from weakref import WeakSet

import aiohttp

from sfusion_tools._loops import PerLoop, before_loop_ends
from sfusion_tools._version import __version__

IDLE_SECONDS = 4.0
"""Sandbox Fusion closes an idle connection after 5 s; one that we drop first is never reused while it is dying."""


class _Opened:
    def __init__(self) -> None:
        self.users: WeakSet[object] = WeakSet()
        self.guard: AsyncGenerator[None] | None = None
        self.session = aiohttp.ClientSession(
            # How many may be in flight is the limiter's business, how long one may take the client's.
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
    """The session of the running loop, opened when nobody has needed it yet."""
    opened = _opened.get()
    if opened.guard is None:
        opened.guard = before_loop_ends(_at_loop_end)
        await anext(opened.guard)
    opened.users.add(user)
    return opened.session


async def leave(user: object) -> None:
    """The user needs the running loop's session no more; the last one to leave closes it."""
    opened = _opened.peek()
    if opened is None:
        return
    opened.users.discard(user)
    if not opened.users:
        _opened.pop()
        if opened.guard is not None:
            await opened.guard.aclose()  # finds nothing to close, and never wakes again
        await opened.session.close()


async def _at_loop_end() -> None:
    opened = _opened.pop()
    if opened is not None:
        await opened.session.close()
