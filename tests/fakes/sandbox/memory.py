"""A connection without a socket, so that a whole server can run on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

from sfusion.fakes.wire import WireServer


class MemoryConnection(asyncio.Transport):
    """A transport for the server; the client uses ``send``, ``received``, ``received_at`` and
    ``closed_at``."""

    def __init__(self, server: WireServer) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self.protocol = server.protocol()
        self.received = b""
        self.received_at: float | None = None
        self.closed_at: float | None = None
        self.was_reset = False
        self.protocol.connection_made(self)

    def send(self, data: bytes) -> None:
        if self.closed_at is None:
            self.protocol.data_received(data)

    def write(self, data: Any) -> None:
        self.received += bytes(data)
        self.received_at = self._loop.time()

    def get_write_buffer_size(self) -> int:
        return 0

    def close(self) -> None:
        if self.closed_at is None:
            self.closed_at = self._loop.time()
            self._loop.call_soon(self.protocol.connection_lost, None)

    def abort(self) -> None:
        self.was_reset = self.closed_at is None
        self.close()

    def is_closing(self) -> bool:
        return self.closed_at is not None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
