"""What Linux's local sockets make of a program's writes: packets, what they cost, and where the real server stops.

The numbers are the kernel's, for pages of 4 KiB. Pure, apart from `as_here`, which asks this machine whether they hold.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from functools import cache

STOP_ABOVE = 131_072
"""The real server does not read a stream any more once it holds more than this."""
PACKET = 36_544
"""Into pieces of this size Linux cuts a large write to a local socket."""
WHOLE = 6 * PACKET
"""What the kernel buffer of the real server's sockets takes of one large write: 219,264 bytes."""
SEND_BUFFER = 212_992
"""Linux's default, asked for so that a machine set up otherwise behaves the same."""
SLACK = 2_500
"""Bytes that what waits for us may cost the kernel more than one large write would, and still count as one."""


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


def is_large_write(waiting: int, cost: int) -> bool:
    """Say whether the bytes that wait were written in one go, from what they cost the kernel."""
    whole, rest = divmod(waiting, PACKET)
    if not whole or cost - whole * packet_cost(PACKET) - packet_cost(rest) >= SLACK:
        return False
    return buffers_waiting(waiting, cost) is None  # a few buffers can cost nearly as little as one large write


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Make a pair of sockets, ours and the program's, with the kernel buffer that the recordings were made with."""
    ours, theirs = socket.socketpair()
    set_buffer(theirs, SEND_BUFFER)
    ours.setblocking(False)
    return ours, theirs


def set_buffer(stream: socket.socket, size: int) -> None:
    """Let a socket hold so many bytes that were written to it, by cost."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size // 2)  # Linux doubles it


def bytes_waiting(ours: socket.socket) -> int:
    """Ask how many bytes can be read."""
    return _ask(ours, termios.FIONREAD)


def cost_waiting(theirs: socket.socket) -> int:
    """Ask what the bytes that were written and not yet read cost."""
    return _ask(theirs, termios.TIOCOUTQ)


def _ask(stream: socket.socket, what: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(stream, what, b"\0" * 4))[0])


@cache
def as_here() -> bool:
    """Find out whether this machine's sockets behave so."""
    if not sys.platform.startswith("linux"):
        return False
    ours, theirs = stream_pair()
    theirs.setblocking(False)
    with ours, theirs:
        try:
            large = theirs.send(bytes(4 * WHOLE)), bytes_waiting(ours), cost_waiting(theirs)
            ours.recv(WHOLE)
            small = theirs.send(bytes(8_192)), bytes_waiting(ours), cost_waiting(theirs)
        except OSError:
            return False
    return large == (WHOLE, WHOLE, 6 * packet_cost(PACKET)) and small == (8_192, 8_192, packet_cost(8_192))
