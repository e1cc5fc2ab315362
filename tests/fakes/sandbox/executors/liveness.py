"""Observes from outside whether a program is alive: it holds a connection until it dies."""

from __future__ import annotations

import asyncio
import socket


class LivenessSocket:
    """A local socket to which programs connect."""

    def __init__(self, listening: socket.socket, path: str) -> None:
        self._listening = listening
        self._path = path

    @property
    def python(self) -> str:
        """Lines of Python that connect to the socket and send a greeting."""
        return (
            "import socket as _socket\n"
            "_seen = _socket.socket(_socket.AF_UNIX)\n"
            f"_seen.connect({self._path!r})\n"
            "_seen.send(b'here')\n"
        )

    async def accept(self) -> socket.socket:
        """Wait for a program to connect."""
        connection, _ = await asyncio.to_thread(self._listening.accept)
        connection.settimeout(30)
        assert await asyncio.to_thread(connection.recv, 4) == b"here"
        return connection


async def dead(connection: socket.socket) -> bool:
    """Wait until the other end is closed; return False after half a minute."""
    with connection:
        try:
            return await asyncio.to_thread(connection.recv, 1) == b""
        except TimeoutError:
            return False
