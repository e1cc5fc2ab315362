"""A connection without a socket, so that a whole server can run on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from sfusion.fakes.wire import WireServer


class MemoryConnection(asyncio.Transport):
    """The server's end is a transport; the client's is ``send``, ``heard``, ``heard_at`` and ``closed_at``."""

    def __init__(self, server: WireServer) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._protocol = server.protocol()
        self.heard = b""
        self.heard_at: float | None = None
        self.closed_at: float | None = None
        self._protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        """Bytes from the client."""
        self._protocol.data_received(data)

    def write(self, data: Any) -> None:
        """Bytes from the server."""
        self.heard += bytes(data)
        self.heard_at = self._loop.time()

    def close(self) -> None:
        """The server ends the connection."""
        if self.closed_at is None:
            self.closed_at = self._loop.time()
            self._loop.call_soon(self._protocol.connection_lost, None)

    abort = close

    def is_closing(self) -> bool:
        """Is it over?"""
        return self.closed_at is not None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket behind it."""
        return default

    def pause_reading(self) -> None:
        """Nothing comes unasked."""

    def resume_reading(self) -> None:
        """Nothing comes unasked."""
