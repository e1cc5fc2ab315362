"""Accepts connections on a listening socket until it is closed, whenever that is."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

_BACKLOG = 2048
_PAUSE = 1.0
"""Seconds without accepting when the process has no descriptors left."""

Factory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Serves a bound socket on the running loop.

    Not ``loop.create_server``: when its server is closed in the turn of the loop in which a connection was accepted,
    that connection is never closed (a fault of CPython's). A server that crashes on command is closed in any turn.
    """

    def __init__(self, factory: Factory, sock: socket.socket) -> None:
        self._factory = factory
        self._sock = sock
        self._open = True
        self._arriving: dict[asyncio.Task[None], socket.socket] = {}
        sock.listen(_BACKLOG)
        self._watch()

    def close(self) -> None:
        """Refuse from now on; who is being let in just now is sent away."""
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
                # No descriptors left, as a rule: let some be given back before the next try.
                loop.remove_reader(self._sock)
                loop.call_later(_PAUSE, self._watch)
                return
            connected.setblocking(False)
            task = loop.create_task(self._welcome(connected))
            self._arriving[task] = connected
            task.add_done_callback(self._arrived)

    def _arrived(self, task: asyncio.Task[None]) -> None:
        connected = self._arriving.pop(task)
        if task.cancelled():
            connected.close()  # the loop ends, perhaps before the task had begun

    async def _welcome(self, connected: socket.socket) -> None:
        if not self._open:
            connected.close()
            return
        try:
            await asyncio.get_running_loop().connect_accepted_socket(self._factory, connected)
        except OSError:
            connected.close()  # it is gone already
