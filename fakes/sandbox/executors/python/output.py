"""Collects the output of a program like the real server, which does not drain it.

The real server's event loop reads a stream until it has more than 128 KiB and then stops; later
output stays in the kernel buffer of the socket and is never read. So one large write arrives up to
the size of that buffer (219,264 bytes), the same amount again is lost silently, and beyond that the
program blocks until its time limit. The rules below do the same, deterministically.
"""

from __future__ import annotations

import asyncio
import socket

from sfusion_tools.output_sizes import FULL_PIPE_BYTES, PIPE_BYTES

from .packets import (
    PACKET,
    as_here,
    buffers_waiting,
    bytes_waiting,
    cost_waiting,
    drop_excess,
    hold,
    in_transit,
    is_large_write,
    let_go_on,
    packet_cost,
    stream_pair,
)

MARGIN = 200
"""Total bytes by which writes of one buffer each may differ from each other (chosen)."""
SETTLE = 0.002
"""Seconds between two checks whether a large write in progress has grown (chosen)."""
LOOKS = 250
"""Checks without growth after which a write of whole packets counts as finished.

Chosen: half a second, for which a busy machine may keep a writer waiting.
"""
SMALL_LOOKS = 3
"""Checks that must agree that writes are small (chosen)."""
_AT_ONCE = 65_536
"""Bytes of one read where packets are not told apart (chosen)."""


def decoded(data: bytes) -> str:
    """Decode like the real server: one byte that is not UTF-8 replaces the whole stream."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        return f"[DecodeError] {exc}"


class Capture:
    """An output stream of a program."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, ours: socket.socket, theirs: socket.socket
    ) -> None:
        self._loop = loop
        self._ours = ours
        self._theirs = theirs
        self._held = bytearray()

    def fileno(self) -> int:
        """Return the descriptor that the program writes to."""
        return self._theirs.fileno()

    def take(self) -> bytes:
        """Stop reading and return what was kept."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the stream; later writes of the program fail."""
        self._stop()
        self._ours.close()
        self._theirs.close()

    def _stop(self) -> None:
        if self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours)


def capture(loop: asyncio.AbstractEventLoop) -> Capture:
    """Make a stream for a program to write to, and read from it as data arrives."""
    return PacketCapture(loop) if as_here() else CountingCapture(loop)


class CountingCapture(Capture):
    """For systems other than Linux: all output counts as one large write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop, *socket.socketpair())
        self._ours.setblocking(False)
        self._lost = 0
        loop.add_reader(self._ours, self._read)

    def take(self) -> bytes:
        while self._lost < PIPE_BYTES and self._read():
            pass
        self._stop()
        return bytes(self._held)

    def _read(self) -> bool:
        """Read once; return whether there was something.

        Data beyond the limit is lost, and after the same amount again the program must wait.
        """
        try:
            data = self._ours.recv(_AT_ONCE)
        except BlockingIOError:
            return False
        room = PIPE_BYTES - len(self._held)
        self._held += data[:room]
        self._lost += max(len(data) - room, 0)
        if self._lost >= PIPE_BYTES:
            self._loop.remove_reader(self._ours)
        return bool(data)


class PacketCapture(Capture):
    """For Linux: reads like the real server, packet by packet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        # Keep the program's end open here, too: it knows the cost of the bytes in between.
        super().__init__(loop, *stream_pair())
        self._reading = True
        self._before = 0
        self._looks = 0
        self._small_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self._ours, self._readable)

    def take(self) -> bytes:
        while self._reading and bytes_waiting(self._ours):
            self._read(*self._balance())
        self._stop()
        return bytes(self._held)

    def _readable(self) -> None:
        waiting, cost = self._balance()
        if self._must_wait(waiting, cost):
            self._loop.remove_reader(self._ours)
            self._timer = self._loop.call_later(SETTLE, self._check_again)
            return
        self._before = 0
        self._looks = 0
        self._read(waiting, cost)

    def _must_wait(self, waiting: int, cost: int) -> bool:
        """Return whether to check again in a moment before reading."""
        if is_large_write(waiting, cost) or in_transit(waiting, cost):
            if self._small_looks >= SMALL_LOOKS:
                let_go_on(self._theirs)
            self._small_looks = 0
            return waiting < PIPE_BYTES and self._may_grow(waiting)
        if waiting <= FULL_PIPE_BYTES - len(self._held) or cost == packet_cost(waiting):
            return False
        self._small_looks += 1
        if self._small_looks == SMALL_LOOKS:
            hold(self._theirs)  # and give what is on its way the time to arrive
        return self._small_looks <= SMALL_LOOKS

    def _may_grow(self, waiting: int) -> bool:
        """Return whether a large write may be in progress, perhaps slowed down by others."""
        self._looks = self._looks + 1 if waiting == self._before else 0
        self._before = waiting
        most = LOOKS if waiting % PACKET == 0 else 1
        return self._looks < most

    def _check_again(self) -> None:
        self._timer = None
        self._loop.add_reader(self._ours, self._readable)
        self._readable()

    def _read(self, waiting: int, cost: int) -> None:
        """Read a large write at once, small ones up to the first that passes the limit.

        The real server reads small writes one by one as they arrive. Here several may have piled
        up, depending on the load of the machine, and the result must not depend on that.
        """
        below = FULL_PIPE_BYTES - len(self._held)
        try:
            if is_large_write(waiting, cost):
                self._held += self._ours.recv(waiting)
            elif waiting <= below or cost == packet_cost(waiting):
                self._held += self._ours.recv(waiting or 1)
            else:
                hold(self._theirs)  # so that nothing is added while packets are told apart
                self._held += self._up_to_packet(below, waiting, cost)
                drop_excess(self._ours, self._theirs)
        except BlockingIOError:
            return
        if len(self._held) > FULL_PIPE_BYTES:
            self._stop()

    def _up_to_packet(self, below: int, waiting: int, cost: int) -> bytes:
        """Read to the end of the first packet that passes the limit, which is `below` bytes away.

        The kernel releases the cost of a packet with its last byte, so the end is found byte by
        byte, starting a little before its expected position.
        """
        sure = below
        count = buffers_waiting(waiting, cost)
        if count:
            whole_buffers = below * count // waiting + 1
            expected_end = int(whole_buffers * waiting / count)
            sure = max(below, expected_end - MARGIN)
        data = bytearray(self._ours.recv(sure) if sure else b"")
        cost = cost_waiting(self._theirs)
        while len(data) < below + PACKET:
            byte = self._next_byte()
            if not byte:
                break
            data += byte
            left = cost_waiting(self._theirs)
            if left < cost:
                break
            cost = left
        return bytes(data)

    def _next_byte(self) -> bytes:
        """Read one more byte.

        None if the next packet is still on its way, whose cost has hidden the end of the last.
        """
        try:
            return self._ours.recv(1)
        except BlockingIOError:
            return b""

    def _balance(self) -> tuple[int, int]:
        """Return the waiting bytes and their cost at one moment.

        The cost includes that of a packet in transit.
        """
        while True:
            waiting = bytes_waiting(self._ours)
            cost = cost_waiting(self._theirs)
            if bytes_waiting(self._ours) == waiting:
                return waiting, cost

    def _stop(self) -> None:
        self._reading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super()._stop()
