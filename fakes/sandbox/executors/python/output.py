"""Collects a program's output the way the real server does, which nobody drains while the program runs.

The real server's event loop reads a stream until it holds more than 128 KiB and then stops; what the program writes
after that stays in the socket's kernel buffer and is never looked at. So one large write arrives up to what that
buffer holds (219,264 bytes), as much again is lost without a word, and beyond that the program blocks until its time
is over. The rules below do the same, and do it the same way every time.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios

STOP_ABOVE = 131_072
"""The stream is not read any more once it holds more than this."""
PACKET = 36_544
"""Into pieces of this size Linux cuts a large write to a local socket."""
WHOLE = 6 * PACKET
"""What the kernel buffer of the real server's sockets takes of one large write: 219,264 bytes."""
PACKET_COST = 768
"""Bytes that the kernel charges a socket for every packet, besides what is in it."""
LARGE_COST = 1.03
"""What waits for us is one large write when it costs the kernel no more than this many times its size."""
BUFFERED = 8_192
"""What a program that buffers usually writes at a time; used where the kernel does not tell."""
SEND_BUFFER = 212_992
"""Linux's default, asked for so that a machine set up otherwise behaves the same."""
SETTLE = 0.002
"""Seconds after which a large write that did not grow any more has been written as far as it goes."""


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Make a pair of sockets, ours and the program's, with the kernel buffer that the recordings were made with."""
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER // 2)  # the kernel doubles it
    ours.setblocking(False)
    return ours, theirs


def decoded(data: bytes) -> str:
    """Decode as the real server does: one byte that is not UTF-8 costs the whole stream."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        return f"[DecodeError] {exc}"


def is_large_write(waiting: int, cost: int | None) -> bool:
    """Say whether the bytes that wait were written in one go, from what they cost the kernel."""
    return waiting >= PACKET and (cost is None or cost <= LARGE_COST * waiting)


def next_read(waiting: int, cost: int | None, held: int) -> int:
    """Say how much to read now of `waiting` bytes when `held` are held already.

    A large write is read in one go. Small ones are read one by one on the real server, up to the first that goes
    past the mark; here as many as would have been, however many have piled up, so that a busy machine cuts where an
    idle one does.
    """
    if is_large_write(waiting, cost):
        return WHOLE
    each = BUFFERED if cost is None else max(waiting // max((cost - waiting) // PACKET_COST, 1), 1)
    return ((STOP_ABOVE - held) // each + 1) * each


class Capture:
    """One output stream of one program."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Make the stream and read from it as data comes."""
        self._loop = loop
        # The program's end stays open here too: it knows what the bytes in between cost.
        self._ours, self._theirs = stream_pair()
        self._held = bytearray()
        self._reading = True
        self._before = 0
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(self._ours, self._readable)

    def fileno(self) -> int:
        """Give the descriptor that the program writes to."""
        return self._theirs.fileno()

    def take(self) -> bytes:
        """Stop reading and give what has arrived."""
        while self._reading and (waiting := self._waiting()):
            self._read(waiting)
        self._stop()
        return bytes(self._held)

    def close(self) -> None:
        """Close the stream; a program that writes to it any more fails."""
        self._stop()
        self._ours.close()
        self._theirs.close()

    def _readable(self) -> None:
        waiting = self._waiting()
        growing = waiting < WHOLE and waiting != self._before
        if growing and is_large_write(waiting, self._cost()):
            # A large write may be under way, packet by packet: look again when it has had time to go on.
            self._before = waiting
            self._loop.remove_reader(self._ours)
            self._timer = self._loop.call_later(SETTLE, self._look_again)
            return
        self._before = 0
        self._read(waiting)

    def _look_again(self) -> None:
        self._timer = None
        self._loop.add_reader(self._ours, self._readable)
        self._readable()

    def _read(self, waiting: int) -> None:
        try:
            self._held += self._ours.recv(next_read(waiting, self._cost(), len(self._held)))
        except BlockingIOError:
            return
        if len(self._held) > STOP_ABOVE:
            self._stop()

    def _stop(self) -> None:
        self._reading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ours.fileno() >= 0:
            self._loop.remove_reader(self._ours)

    def _waiting(self) -> int:
        return _ask(self._ours, termios.FIONREAD)

    def _cost(self) -> int | None:
        return _ask(self._theirs, termios.TIOCOUTQ) if sys.platform.startswith("linux") else None


def _ask(stream: socket.socket, what: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(stream, what, b"\0" * 4))[0])
