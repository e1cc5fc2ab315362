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
SLACK = 2_500
"""Bytes that what waits for us may cost the kernel more than one large write would, and still count as one."""
BUFFERED = 8_192
"""What a program that buffers usually writes at a time; used where the kernel does not tell."""
MARGIN = 200
"""Bytes by which writes of one buffer each may differ from each other, all together."""
SEND_BUFFER = 212_992
"""Linux's default, asked for so that a machine set up otherwise behaves the same."""
SETTLE = 0.002
"""Seconds after which to look again whether a large write that is under way has grown."""
LOOKS = 250
"""Looks without growth after which a write that is whole packets long so far is thought to be finished."""
SMALL_LOOKS = 3
"""Looks that must agree that writes are small: a packet on its way has its cost already but not yet its bytes."""


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


def packet_cost(size: int) -> int:
    """Say what Linux charges a local socket for one packet: whole pages, a power of two for the rest, and a header."""
    in_pages = min(size, _up(max(size - 3_776, 0), 4_096))
    head = _up(size - in_pages, 64) + 320
    return _up(in_pages, 4_096) + max(512, 1 << (head - 1).bit_length()) + 256


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def buffers_waiting(waiting: int, cost: int) -> int | None:
    """Say how many writes of one buffer each explain the cost of what waits, at most; None when none do."""
    counts = range(waiting // 900 + 1, waiting // 16_384, -1)
    return next((count for count in counts if count * packet_cost(waiting // count) == cost), None)


def is_large_write(waiting: int, cost: int | None) -> bool:
    """Say whether the bytes that wait were written in one go, from what they cost the kernel."""
    if waiting < PACKET or cost is None:
        return waiting >= PACKET
    whole, rest = divmod(waiting, PACKET)
    if cost - whole * packet_cost(PACKET) - packet_cost(rest) >= SLACK:
        return False
    return buffers_waiting(waiting, cost) is None  # a few buffers can cost nearly as little as one large write


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
        self._looks = 0
        self._small_looks = 0
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
        if self._must_wait(waiting, self._cost()):
            self._loop.remove_reader(self._ours)
            self._timer = self._loop.call_later(SETTLE, self._look_again)
            return
        self._before = self._looks = 0
        self._read(waiting)

    def _must_wait(self, waiting: int, cost: int | None) -> bool:
        """Say whether to look again in a moment before reading."""
        if is_large_write(waiting, cost):
            self._small_looks = 0
            return waiting < WHOLE and self._may_grow(waiting)
        if cost is None or waiting <= STOP_ABOVE - len(self._held) or cost == packet_cost(waiting):
            return False
        self._small_looks += 1
        if self._small_looks == SMALL_LOOKS:
            self._set_buffer(0)  # from now on the program waits, so that nothing moves while packets are told apart
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
        cost = self._cost()
        below = STOP_ABOVE - len(self._held)
        try:
            if is_large_write(waiting, cost):
                self._held += self._ours.recv(waiting)
            elif waiting <= below or cost == packet_cost(waiting):
                self._held += self._ours.recv(waiting or 1)
            elif cost is None:
                self._held += self._ours.recv(below + BUFFERED)
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
            waiting, cost = self._waiting(), self._cost() or 0
            if self._waiting() == waiting:
                return waiting, cost

    def _make_way(self) -> None:
        """Take out what had piled up behind the mark, and let the buffer hold that much less from now on.

        Nobody looks at those bytes any more, but a writer that was waiting for room is woken only by an almost empty
        buffer; on the real server, where nothing piles up, it would not have been waiting.
        """
        piled_up, cost = self._balance()
        if piled_up:
            self._ours.recv(piled_up)
        self._set_buffer(max(SEND_BUFFER - cost, 0))

    def _set_buffer(self, size: int) -> None:
        self._theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size // 2)  # the kernel doubles it

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
