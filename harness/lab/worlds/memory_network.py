"""In-memory connections within one event loop: bytes arrive at once, in order, the same in every
run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any

Address = tuple[str, int]
_KERNEL = 64 * 1024
"""Bytes that a kernel would take at once. They are on their way, though they have not arrived."""
_HIGH_WATER = 64 * 1024
"""Unsent bytes above which a protocol is asked to pause: the default of asyncio's transports."""
_CHUNK = 256 * 1024
"""Bytes that arrive at once: what asyncio reads from a socket at a time."""


class MemoryNetwork:
    """The listening servers by address. An address whose server has closed refuses connections."""

    def __init__(self, loop: Any) -> None:
        self.loop = loop
        self._ends = itertools.count(1)
        self._listening: dict[Address, MemoryServer | None] = {}
        self._dialled: dict[Any, Address] = {}
        self.connects = 0
        """How often a client connected to one of ours, or tried to."""

    def listen(self, factory: Callable[[], asyncio.Protocol], sock: Any) -> MemoryServer:
        """Accept connections to the address that the socket is bound to; the socket itself never
        listens."""
        address: Address = sock.getsockname()[:2]
        server = MemoryServer(self, address, factory, sock)
        self._listening[address] = server
        return server

    def unlisten(self, server: MemoryServer) -> None:
        """Refuse connections to the server's address from now on."""
        if self._listening.get(server.address) is server:
            self._listening[server.address] = None

    def knows(self, address: Any) -> bool:
        """Is or was there a server of this loop at the address?"""
        return isinstance(address, tuple) and address[:2] in self._listening

    def dial(self, sock: Any, address: Any) -> bool:
        """Remember where a socket connects to; return False if the address is not one of ours."""
        if not self.knows(address):
            return False
        self.connects += 1
        if self._listening[address[:2]] is None:
            raise ConnectionRefusedError(111, "Connection refused")
        self._dialled[sock] = address[:2]
        return True

    def dialled(self, sock: Any) -> Address | None:
        """Return where a socket was connected to and close it, because it is no longer needed."""
        address = self._dialled.pop(sock, None)
        if address is not None:
            sock.close()
        return address

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> tuple[Any, Any]:
        """Open a connection and return the client's transport and protocol."""
        self.connects += 1
        server = self._listening.get(address)
        if server is None:
            raise ConnectionRefusedError(111, "Connection refused")
        protocol = factory()
        # As with real sockets, each end runs in the context in which it was opened.
        near = MemoryTransport(self.loop, address, next(self._ends), copy_context())
        far = MemoryTransport(self.loop, address, next(self._ends), server.context.copy())
        near.join(protocol, far)
        far.join(server.factory(), near)
        near.begin()
        far.on_arrival(far.begin)
        return near, protocol


@dataclass(eq=False)
class MemoryServer(asyncio.AbstractServer):
    network: MemoryNetwork
    address: Address
    factory: Callable[[], asyncio.Protocol]
    sock: Any
    context: Context = field(default_factory=copy_context)

    def close(self) -> None:
        """Refuse new connections; existing ones stay open."""
        self.network.unlisten(self)
        self.sock.close()

    def get_loop(self) -> Any:
        return self.network.loop

    async def start_serving(self) -> None:
        """Do nothing: it serves from the start."""

    async def serve_forever(self) -> None:
        await self.network.loop.create_future()

    def is_serving(self) -> bool:
        return bool(self.sock.fileno() >= 0)

    async def wait_closed(self) -> None:
        """Return at once: closing takes no time."""


class MemoryTransport(asyncio.Transport):
    """One end of an in-memory connection."""

    def __init__(self, loop: Any, address: Address, end: int, context: Context) -> None:
        super().__init__()
        self._loop = loop
        self._end_number = end
        self._context = context
        self._address = address
        self._protocol: Any
        self._peer: MemoryTransport
        self._unsent = bytearray()
        self._sending = False
        self._reading = True
        self._closing = False
        self._ended = False
        self._crowded = False
        self._begun = False

    def join(self, protocol: Any, peer: MemoryTransport) -> None:
        """Connect this end with its peer."""
        self._protocol = protocol
        self._peer = peer

    def on_arrival(self, callback: Callable[..., object], *args: Any) -> None:
        """Call something soon, in order with all that arrives at this end."""
        self._loop.call_on_arrival(callback, *args, end=self._end_number, context=self._context)

    def begin(self) -> None:
        """Report the connection to the protocol, unless the peer has closed it already."""
        if not self._ended:
            self._begun = True
            self._protocol.connection_made(self)

    # -- writing --

    def write(self, data: Any) -> None:
        if self._closing or self._ended or not data:
            return
        self._unsent += data
        self._send_soon()
        if not self._crowded and len(self._unsent) > _HIGH_WATER:
            self._crowded = True
            self._protocol.pause_writing()

    def writelines(self, parts: Any) -> None:
        self.write(b"".join(parts))

    def _send_soon(self) -> None:
        if not self._sending and self._unsent:
            self._sending = True
            self._peer.on_arrival(self._send)

    def _send(self) -> None:
        self._sending = False
        peer = self._peer
        if peer._ended or peer._closing or not peer._reading:
            return
        if not peer._begun:
            self._send_soon()
            return
        data = bytes(self._unsent[:_CHUNK])
        del self._unsent[:_CHUNK]
        if data:
            peer._protocol.data_received(data)
        self._send_soon()
        if self._crowded and len(self._unsent) <= _HIGH_WATER // 4:
            self._crowded = False
            self._protocol.resume_writing()
        if self._closing and not self._unsent:
            self._finish()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the kernel would not have taken yet."""
        return max(0, len(self._unsent) - _KERNEL)

    def can_write_eof(self) -> bool:
        """Half-closed connections are not supported."""
        return False

    # -- reading --

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._peer._send_soon()

    def is_reading(self) -> bool:
        return self._reading

    # -- the end --

    def close(self) -> None:
        """Close after everything written has been delivered."""
        if self._closing or self._ended:
            return
        self._closing = True
        if not self._unsent:
            self._peer.on_arrival(self._finish)

    def abort(self) -> None:
        """Reset the connection: undelivered bytes are lost."""
        self._closing = True
        self._unsent.clear()
        self._end(None)
        self._peer._end(ConnectionResetError(104, "Connection reset by peer"))

    def _finish(self) -> None:
        peer = self._peer
        self._end(None)
        if not peer._ended:
            if peer._begun:
                peer._protocol.eof_received()
            peer._end(None)

    def _end(self, error: Exception | None) -> None:
        if not self._ended:
            self._ended = self._closing = True
            if self._begun:
                self.on_arrival(self._protocol.connection_lost, error)

    def is_closing(self) -> bool:
        return self._closing

    # -- the rest of the interface --

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the server's address; there is no socket."""
        return self._address if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing: the limits are fixed."""
