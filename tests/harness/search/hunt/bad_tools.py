"""Tools that break a run as a whole."""

from __future__ import annotations

import asyncio

from tests.reference_tool import GoodTool, PeerRequest, PeerResult


class Raising(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        raise RuntimeError("boom")


class Forgetful(GoodTool):
    """Leaves behind a task whose exception nobody retrieves."""

    async def run(self, request: PeerRequest) -> PeerResult:
        asyncio.ensure_future(self._oops())  # noqa: RUF006 - the mistake
        return await super().run(request)

    async def _oops(self) -> None:
        raise ValueError("nobody awaits this")


class Spinning(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        while True:  # noqa: ASYNC110 - the mistake
            await asyncio.sleep(0)


class Blocking(GoodTool):
    """Keeps the event loop for itself, and goes on when it is interrupted."""

    async def run(self, request: PeerRequest) -> PeerResult:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Exiting(GoodTool):
    async def run(self, request: PeerRequest) -> PeerResult:
        raise SystemExit(3)
