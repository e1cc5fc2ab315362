"""Accepting connections on a listening socket that may be closed at any moment."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_BACKLOG = 2048
_PAUSE = 1.0
"""Seconds to wait when the process has run out of file descriptors."""

Factory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Serves a bound socket on the running loop.

    Not ``loop.create_server``: if its server is closed in the same turn of the loop in which a connection was accepted,
    that connection is never closed (a bug in CPython). A server that crashes on command can be closed in any turn.
    """

    def __init__(self, factory: Factory, sock: socket.socket) -> None:
        self._factory = factory
        self._sock = sock
        self._open = True
        self._accepting: dict[asyncio.Task[None], socket.socket] = {}
        sock.listen(_BACKLOG)
        self._watch()

    def close(self) -> None:
        """Refuse new connections, and close those that are being accepted."""
        self._open = False
        asyncio.get_running_loop().remove_reader(self._sock)
        self._sock.close()

    def _watch(self) -> None:
        if self._open:
            asyncio.get_running_loop().add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(_BACKLOG):
            try:
                connected, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError:
                # Usually out of file descriptors: wait for some to be closed.
                loop.remove_reader(self._sock)
                loop.call_later(_PAUSE, self._watch)
                return
            connected.setblocking(False)
            task = loop.create_task(self._serve(connected))
            self._accepting[task] = connected
            task.add_done_callback(self._accepted)

    def _accepted(self, task: asyncio.Task[None]) -> None:
        connected = self._accepting.pop(task)
        if task.cancelled():
            connected.close()  # the loop ended, perhaps before the task had begun

    async def _serve(self, connected: socket.socket) -> None:
        if not self._open:
            connected.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._factory, connected)
        except OSError:
            connected.close()  # the client has disconnected already
