"""Collects a program's output the way the real server does, which nobody drains while the program runs.

The real server's event loop reads a stream until it holds more than 128 KiB and then stops; what the program writes
after that stays in the socket's kernel buffer and is never looked at. So one large write arrives up to what that
buffer holds (219,264 bytes), as much again is lost without a word, and beyond that the program blocks until its time
is over. The rules below do the same, and do it the same way every time.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

from .packets import (
    PACKET,
    SEND_BUFFER,
    STOP_ABOVE,
    WHOLE,
    as_here,
    buffers_waiting,
    bytes_waiting,
    cost_waiting,
    is_large_write,
    packet_cost,
    set_buffer,
    stream_pair,
)

MARGIN = 200
"""Bytes by which writes of one buffer each may differ from each other, all together."""
SETTLE = 0.002
"""Seconds after which to look again whether a large write that is under way has grown."""
LOOKS = 250
"""Looks without growth after which a write that is whole packets long so far is thought to be finished."""
SMALL_LOOKS = 3
"""Looks that must agree that writes are small: a packet on its way has its cost already but not yet its bytes."""


def decoded(data: bytes) -> str:
    """Decode as the real server does: one byte that is not UTF-8 costs the whole stream."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        return f"[DecodeError] {exc}"


class Capture(Protocol):
    """One output stream of one program."""

    def fileno(self) -> int:
        """Give the descriptor that the program writes to."""

    def take(self) -> bytes:
        """Stop reading and give what is kept."""

    def close(self) -> None:
        """Close the stream; a program that writes to it any more fails."""


def capture(loop: asyncio.AbstractEventLoop) -> Capture:
    """Make a stream for a program to write to, and read from it as data comes."""
    return PacketCapture(loop) if as_here() else CountingCapture(loop)


class CountingCapture:
    """For systems with other sockets than Linux's: every output is treated like one large write."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the stream and read from it as data comes."""
        self._loop = loop
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._held = bytearray()
        self._lost = 0
        loop.add_reader(self._ours, self._read)

    def fileno(self) -> int:
        """Give the descriptor that the program writes to."""
        return self._theirs.fileno()

    def take(self) -> bytes:
        """Stop reading and give what is kept."""
        while self._lost < WHOLE and self._read():
            pass
        self._loop.remove_reader(self._ours)
        return bytes(self._held)

    def close(self) -> None:
        """Close the stream; a program that writes to it any more fails."""
        if self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours)
        self._ours.close()
        self._theirs.close()

    def _read(self) -> bool:
        """Read once; what does not fit any more is lost, and when as much was lost the program may wait."""
        try:
            data = self._ours.recv(65_536)
        except BlockingIOError:
            return False
        room = WHOLE - len(self._held)
        self._held += data[:room]
        self._lost += max(len(data) - room, 0)
        if self._lost >= WHOLE:
            self._loop.remove_reader(self._ours)
        return bool(data)


class PacketCapture:
    """For Linux: reads as the real server does, packet by packet."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the stream and read from it as data comes."""
        self._loop = loop
        # The program's end stays open here too: it knows what the bytes in between cost.
        self._ours, self._theirs = stream_pair()
        self._held = bytearray()
        self._reading = True
        self._before = 0
        self._looks = 0
        self._small_looks = 0
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self._ours, self._readable)

    def fileno(self) -> int:
        """Give the descriptor that the program writes to."""
        return self._theirs.fileno()

    def take(self) -> bytes:
        """Stop reading and give what has arrived."""
        while self._reading and (waiting := bytes_waiting(self._ours)):
            self._read(waiting)
        self._stop()
        return bytes(self._held)

    def close(self) -> None:
        """Close the stream; a program that writes to it any more fails."""
        self._stop()
        self._ours.close()
        self._theirs.close()

    def _readable(self) -> None:
        waiting = bytes_waiting(self._ours)
        if self._must_wait(waiting, cost_waiting(self._theirs)):
            self._loop.remove_reader(self._ours)
            self._timer = self._loop.call_later(SETTLE, self._look_again)
            return
        self._before = self._looks = 0
        self._read(waiting)

    def _must_wait(self, waiting: int, cost: int) -> bool:
        """Say whether to look again in a moment before reading."""
        if is_large_write(waiting, cost):
            if self._small_looks >= SMALL_LOOKS:
                set_buffer(self._theirs, SEND_BUFFER)
            self._small_looks = 0
            return waiting < WHOLE and self._may_grow(waiting)
        if waiting <= STOP_ABOVE - len(self._held) or cost == packet_cost(waiting):
            return False
        self._small_looks += 1
        if self._small_looks == SMALL_LOOKS:
            set_buffer(
                self._theirs, 0
            )  # from now on the program waits, so that nothing moves while packets are told apart
        return self._small_looks <= SMALL_LOOKS

    def _may_grow(self, waiting: int) -> bool:
        """Say whether a large write may be under way, packet by packet, its writer perhaps held up by others."""
        self._looks = self._looks + 1 if waiting == self._before else 0
        self._before = waiting
        return self._looks < (LOOKS if waiting % PACKET == 0 else 1)

    def _look_again(self) -> None:
        self._timer = None
        self._loop.add_reader(self._ours, self._readable)
        self._readable()

    def _read(self, waiting: int) -> None:
        """Read a large write in one go, small ones up to the first that goes past the mark.

        The real server reads small writes one by one as they come. Here several may have piled up, on a busy machine
        more than on an idle one, and the cut must not depend on it.
        """
        cost = cost_waiting(self._theirs)
        below = STOP_ABOVE - len(self._held)
        try:
            if is_large_write(waiting, cost):
                self._held += self._ours.recv(waiting)
            elif waiting <= below or cost == packet_cost(waiting):
                self._held += self._ours.recv(waiting or 1)
            else:
                self._held += self._up_to_packet(below, waiting, cost)
                self._make_way()
        except BlockingIOError:
            return
        if len(self._held) > STOP_ABOVE:
            self._stop()

    def _up_to_packet(self, below: int, waiting: int, cost: int) -> bytes:
        """Read to the end of the first packet that goes past the mark, which is `below` bytes away.

        A packet's cost is given back when its last byte is read; so the end is found byte by byte, starting a little
        before the place where it is to be expected.
        """
        sure = below
        if count := buffers_waiting(waiting, cost):
            sure = max(below, int((below * count // waiting + 1) * waiting / count) - MARGIN)
        data = bytearray(self._ours.recv(sure) if sure else b"")
        waiting, cost = self._balance()
        while len(data) < below + PACKET:
            data += self._ours.recv(1)
            left, now = self._balance()
            added = left - waiting + 1  # by the program, meanwhile
            if now < cost + (packet_cost(added) if added > 0 else 0):
                break
            waiting, cost = left, now
        return bytes(data)

    def _balance(self) -> tuple[int, int]:
        """Ask for the bytes that wait and their cost, as they are at one moment."""
        while True:
            waiting, cost = bytes_waiting(self._ours), cost_waiting(self._theirs)
            if bytes_waiting(self._ours) == waiting:
                return waiting, cost

    def _make_way(self) -> None:
        """Take out what had piled up behind the mark, and let the buffer hold that much less from now on.

        Nobody looks at those bytes any more, but a writer that was waiting for room is woken only by an almost empty
        buffer; on the real server, where nothing piles up, it would not have been waiting.
        """
        piled_up, cost = self._balance()
        if piled_up:
            self._ours.recv(piled_up)
        set_buffer(self._theirs, max(SEND_BUFFER - cost, 0))

    def _stop(self) -> None:
        self._reading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours)
