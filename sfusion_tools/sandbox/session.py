"""The HTTP sessions of a client: one for each event loop, closed when that loop ends."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import aiohttp

from sfusion_tools._loops import PerLoop, before_loop_ends
from sfusion_tools._version import __version__

IDLE_SECONDS = 4.0
"""Sandbox Fusion closes an idle connection after 5 s; one that we drop first is never reused while it is dying."""


class _Opened:
    def __init__(self) -> None:
        self.guard: AsyncGenerator[None] | None = None
        self.session = aiohttp.ClientSession(
            # How many may be in flight is the limiter's business, how long one may take the client's.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"User-Agent": f"sfusion/{__version__}", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )


class Sessions:
    """Gives the session of the running loop."""

    def __init__(self) -> None:
        self._opened = PerLoop(_Opened)

    async def get(self) -> aiohttp.ClientSession:
        """The session, opened when this is its first use here."""
        opened = self._opened.get()
        if opened.guard is None:
            opened.guard = before_loop_ends(self._at_loop_end)
            await anext(opened.guard)
        return opened.session

    async def aclose(self) -> None:
        """Close the running loop's session; the next use opens another."""
        opened = self._opened.pop()
        if opened is not None:
            if opened.guard is not None:
                await opened.guard.aclose()  # finds nothing to close, and never wakes again
            await opened.session.close()

    async def _at_loop_end(self) -> None:
        opened = self._opened.pop()
        if opened is not None:
            await opened.session.close()
