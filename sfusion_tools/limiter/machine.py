"""The limiter of a machine: one limit for all its processes that name it, without Ray and
without a server to start."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any
from weakref import WeakMethod, WeakSet

from sfusion_tools._loops import in_daemon_thread
from sfusion_tools.errors import LimiterError, LimiterUnreachable, ProtocolMismatch
from sfusion_tools.limiter.client import Limiter
from sfusion_tools.limiter.host import settle_difference
from sfusion_tools.limiter.machine_server import Place, framed, unframed
from sfusion_tools.limiter.messages import PROTOCOL, Batch, LimiterReply, Poll, Snapshot
from sfusion_tools.limiter.settings import LimiterSettings, Share

_GREETING_SECONDS = 30.0
_FAREWELL_SECONDS = 1.0

_transports: WeakSet[MachineTransport] = WeakSet()


class MachineTransport:
    """Carries messages to the server of this machine; starts one whenever there is none."""

    def __init__(self, settings: LimiterSettings, name: str, *, apply: bool = False) -> None:
        self._settings = settings
        self._name = name
        self._apply = apply
        self._connection: _Connection | None = None
        self.on_lost: Callable[[], Callable[[], None] | None] = lambda: None
        """Returns what to do when the server ends the connection."""
        _transports.add(self)

    async def exchange(self, batch: Batch) -> LimiterReply:
        connection = self._connection
        if connection is None or connection.closed:
            connection = self._connection = _Connection(
                await in_daemon_thread(self._connect), self._name, lambda: self.on_lost()
            )
        return await connection.ask("exchange", batch)  # type: ignore[no-any-return]

    async def wait(self, poll: Poll) -> LimiterReply:
        if self._connection is None:
            raise LimiterUnreachable(f"limiter {self._name!r} of this host is gone")
        return await self._connection.ask("wait", poll)  # type: ignore[no-any-return]

    def detach(self, farewell: Batch) -> None:
        """Send the message over a connection of its own: the loop of the other one may be
        closed."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        with suppress(OSError):
            connection = Place.of(self._name).connect()
            if connection is not None:
                with connection:
                    connection.settimeout(_FAREWELL_SECONDS)
                    connection.sendall(framed((0, "exchange", farewell)))

    def forget(self) -> None:
        """In a forked child: close its copy of the connection, and leave that of the parent
        alone."""
        if self._connection is not None:
            self._connection.socket.close()
            self._connection = None

    def _connect(self) -> socket.socket:
        try:
            connection = Place.of(self._name).connect_or_start(self._settings)
            try:
                protocol, running = _say(connection, "hello", None)
                if protocol != PROTOCOL:
                    raise ProtocolMismatch(
                        f"limiter {self._name!r} of this host speaks protocol {protocol}, "
                        f"this sfusion {PROTOCOL}: "
                        "use one version in all processes of a host"
                    )
                if LimiterSettings(**running) != self._settings:
                    apply = partial(_say, connection, "configure") if self._apply else None
                    settle_difference(self._name, LimiterSettings(**running), self._settings, apply)
            except BaseException:
                connection.close()
                raise
        except OSError as error:
            raise LimiterUnreachable(f"limiter {self._name!r} of this host: {error}") from error
        connection.setblocking(False)
        return connection


class _Connection:
    """A connection within one event loop: questions are numbered, and answers come in any order."""

    def __init__(
        self, connection: socket.socket, name: str, on_lost: Callable[[], Callable[[], None] | None]
    ) -> None:
        self.socket = connection
        self._name = name
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray()
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._sending = asyncio.Lock()
        self.closed = False
        self._loop.add_reader(connection, self._receive)

    async def ask(self, verb: str, message: Any) -> Any:
        if self.closed:
            raise self._gone()
        self._number += 1
        number, answer = self._number, self._loop.create_future()
        self._asked[number] = answer
        try:
            async with self._sending:
                await self._loop.sock_sendall(self.socket, framed((number, verb, message)))
            return await answer
        except OSError as error:
            del self._asked[number]
            self._lose()
            raise self._gone() from error
        finally:
            self._asked.pop(number, None)

    def _receive(self) -> None:
        try:
            data = self.socket.recv(1 << 16)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._buffer += data
        for number, fine, reply in unframed(self._buffer):
            asked = self._asked.get(number)
            if asked is not None and not asked.done():
                if fine:
                    asked.set_result(reply)
                else:
                    asked.set_exception(LimiterError(reply))

    def _lose(self) -> None:
        self.close()
        if (report := self._on_lost()) is not None:
            report()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if not self._loop.is_closed():
            self._loop.remove_reader(self.socket)
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(self._gone())
        self.socket.close()

    def _gone(self) -> LimiterUnreachable:
        return LimiterUnreachable(f"limiter {self._name!r} of this host: the connection was lost")


def _say(connection: socket.socket, verb: str, message: Any) -> Any:
    """Ask the server and wait for its answer: nothing else is under way on this connection."""
    connection.settimeout(_GREETING_SECONDS)
    connection.sendall(framed((0, verb, message)))
    buffer = bytearray()
    while data := connection.recv(1 << 16):
        buffer += data
        for _, fine, reply in unframed(buffer):
            if not fine:
                raise LimiterError(reply)
            return reply
    raise ConnectionResetError("the connection was lost")


def snapshot(name: str) -> Snapshot | None:
    """Return the state of the machine's limiter of that name, None if there is none. This
    blocks."""
    connection = Place.of(name).connect()
    if connection is None:
        return None
    with connection, suppress(ConnectionError):
        return _say(connection, "snapshot", None)  # type: ignore[no-any-return]
    return None


def machine_limiter(
    settings: LimiterSettings, name: str, *, apply: bool = False, share: Share | None = None
) -> Limiter:
    """Return a client of the machine's limiter of that name, for use within one event loop."""
    transport = MachineTransport(settings, name, apply=apply)
    limiter = Limiter(transport, share=share)
    transport.on_lost = WeakMethod(limiter.reattach)
    return limiter


def _forget() -> None:
    for transport in _transports:
        transport.forget()


os.register_at_fork(after_in_child=_forget)
