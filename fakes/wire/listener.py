"""The listening socket: it keeps its port, is closed by a crash and opened again by a restart."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from ..errors import PortTaken, WireError

_BACKLOG = 2048
"""Connections that may wait to be accepted: uvicorn's default."""
_PAUSE = 1.0
"""Seconds to wait when the process has run out of file descriptors: as long as asyncio waits."""

Factory = Callable[[], asyncio.Protocol]


class Acceptor:
    """Serves a bound socket on the running loop.

    Not ``loop.create_server``: if its server is closed in the same turn of the loop in which a
    connection was accepted, that connection is never closed (a bug in CPython). A server that
    crashes on command can be closed in any turn.
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


class ListeningPort:
    """Holds a port.

    While it does not listen, connections are refused, and no other process can take the port.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._wanted = port
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._take_port(port)
        self._holder: socket.socket | None = None
        self._server: Acceptor | None = None

    def _take_port(self, port: int) -> None:
        host = f"[{self._host}]" if self._family == socket.AF_INET6 else self._host
        self.port = port
        """The port in use; before the first start, the requested one."""
        self.address = f"{host}:{port}"
        """As a URL has it."""

    @property
    def listening(self) -> bool:
        return self._server is not None

    async def open(self, factory: Factory) -> None:
        sock = self._bind(self.port)
        self._take_port(sock.getsockname()[1])
        if self._holder is None:
            self._holder = self._placeholder(self.port)
        # A loop with its own network (virtual time) accepts connections there.
        accept = getattr(asyncio.get_running_loop(), "listen_in_memory", Acceptor)
        try:
            self._server = accept(factory, sock)
        except OSError as error:
            sock.close()
            raise self._explain(error) from error

    def close(self, *, forget_port: bool = False) -> None:
        """Stop listening; with ``forget_port``, let others take the port."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if forget_port:
            if self._holder is not None:
                self._holder.close()
                self._holder = None
            self._take_port(self._wanted or self.port)

    def _bind(self, port: int) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((self._host, port))
        except OSError as error:
            sock.close()
            raise self._explain(error) from error
        except OverflowError as error:
            sock.close()
            raise WireError(f"port {port} does not exist: ports go from 0 to 65535") from error
        sock.setblocking(False)
        return sock

    def _placeholder(self, port: int) -> socket.socket | None:
        """Bind a socket that never listens.

        Where the OS allows it, the port stays ours while the server is down.
        """
        try:
            return self._bind(port)
        except WireError:
            return None

    def _explain(self, error: OSError) -> WireError:
        if error.errno == errno.EADDRINUSE:
            choose = "choose another port, or 0 for a free one"
            return PortTaken(
                f"port {self.port} on {self._host} is in use by another program; {choose}"
            )
        if error.errno == errno.EACCES:
            return WireError(
                f"no permission to listen on port {self.port}; choose a port from 1024 on"
            )
        return WireError(f"cannot listen on {self.address}: {error.strerror or error}")
