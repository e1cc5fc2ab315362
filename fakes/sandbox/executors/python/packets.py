"""How Linux's local sockets divide writes into packets, and what these cost.

From that follows where the real server stops reading. The numbers are the kernel's, for pages of
4 KiB. Pure, except for `as_here`, which tests whether they hold here.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
from functools import cache

from sfusion_tools.output_sizes import PIPE_BYTES

PACKET = 36_544
"""Bytes of the pieces into which Linux divides a large write to a local socket.

The kernel buffer holds six of them, PIPE_BYTES.
"""
SEND_BUFFER = 212_992
"""The default of Linux, set explicitly so that every machine behaves the same."""
LEAST_ROOM = 33_000
"""What must be free for a smaller buffer to have the same effect.

Linux divides writes of more than half of it.
"""
SLACK = 2_500
"""How many bytes more than one large write the waiting data may cost and still count as one."""


def packet_cost(size: int) -> int:
    """Return the cost of one packet in Linux.

    It has whole pages, a power of two for the rest, and a header.
    """
    in_pages = min(size, _up(max(size - 3_776, 0), 4_096))
    head = _up(size - in_pages, 64) + 320
    return _up(in_pages, 4_096) + max(512, 1 << (head - 1).bit_length()) + 256


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


_SMALLEST_BUFFER = 900
_LARGEST_BUFFER = 16_384
"""Bytes that programs write at once from a buffer (chosen: 1 KiB to 8 KiB are usual)."""


def buffers_waiting(waiting: int, cost: int) -> int | None:
    """Return the maximum number of one-buffer writes that explain the cost of the waiting data.

    Return None if none do.
    """
    for count in range(waiting // _SMALLEST_BUFFER + 1, waiting // _LARGEST_BUFFER, -1):
        if count * packet_cost(waiting // count) == cost:
            return count
    return None


def is_large_write(waiting: int, cost: int) -> bool:
    """Return whether the waiting bytes were written at once, judging by their cost."""
    whole, rest = divmod(waiting, PACKET)
    if not whole or cost - whole * packet_cost(PACKET) - packet_cost(rest) >= SLACK:
        return False
    # A few buffers can cost almost as little as one large write.
    return buffers_waiting(waiting, cost) is None


def in_transit(waiting: int, cost: int) -> bool:
    """Return whether the next piece of a large write seems to be on its way.

    It has its cost then, but not yet its bytes.
    """
    whole, rest = divmod(waiting, PACKET)
    if not whole or rest:
        return False
    more = cost - whole * packet_cost(PACKET)
    return 0 < more <= packet_cost(PACKET)


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of sockets, ours and the program's.

    They have the kernel buffer size of the recordings.
    """
    ours, theirs = socket.socketpair()
    _set_buffer(theirs, SEND_BUFFER)
    ours.setblocking(False)
    return ours, theirs


def hold(theirs: socket.socket) -> None:
    """Let the program write no more than a few small packets before it waits."""
    _set_buffer(theirs, 0)


def let_go_on(theirs: socket.socket) -> None:
    """Let the program fill the whole buffer again, also if it waits already.

    The kernel wakes a waiting writer only when three quarters of the buffer are free, however large
    it has become, so wake it by something else. Not one that polls: it would find no space, and its
    output closed for reading.
    """
    _set_buffer(theirs, SEND_BUFFER)
    _wake(theirs)


def drop_excess(ours: socket.socket, theirs: socket.socket) -> None:
    """End a hold when nothing more is read.

    The program may then write as much as if the buffer had its whole size. So much is
    removed, and the buffer made smaller by as much, that three quarters of it are free: then the
    kernel tells a program that polls of it, too.
    """
    full = cost_waiting(theirs)
    cost = full
    if SEND_BUFFER - full < LEAST_ROOM:
        let_go_on(theirs)
        return
    left = bytes_waiting(ours)
    while left and 4 * cost > SEND_BUFFER - (full - cost):
        left -= len(ours.recv(min(left, 1_024)))
        # What it writes into the empty buffer stays there.
        cost = cost_waiting(theirs) if left else 0
    _set_buffer(theirs, SEND_BUFFER - (full - cost))
    if not left and 4 * cost_waiting(theirs) > SEND_BUFFER - full:
        # It wrote before that, and may wait.
        _wake(theirs)


def _wake(theirs: socket.socket) -> None:
    """Let a writer that waits look again for space.

    The kernel would not tell it of so little.
    """
    theirs.shutdown(socket.SHUT_RD)


def _set_buffer(stream: socket.socket, size: int) -> None:
    """Set the size of a socket's send buffer, by cost."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size // 2)  # Linux doubles it


def bytes_waiting(ours: socket.socket) -> int:
    """Return how many bytes can be read."""
    return _ask(ours, termios.FIONREAD)


def cost_waiting(theirs: socket.socket) -> int:
    """Return the cost of the bytes that were written but not yet read."""
    return _ask(theirs, termios.TIOCOUTQ)


def _ask(stream: socket.socket, what: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(stream, what, b"\0" * 4))[0])


_SMALL = 8_192
"""Bytes of a usual write, from the buffer of a program."""


@cache
def as_here() -> bool:
    """Test whether the sockets of this machine behave like this."""
    if not sys.platform.startswith("linux"):
        return False
    ours, theirs = stream_pair()
    theirs.setblocking(False)
    with ours, theirs:
        try:
            taken = theirs.send(bytes(4 * PIPE_BYTES))
            large = (taken, bytes_waiting(ours), cost_waiting(theirs))
            ours.recv(PIPE_BYTES)
            taken = theirs.send(bytes(_SMALL))
            small = (taken, bytes_waiting(ours), cost_waiting(theirs))
        except OSError:
            return False
    expected_large = (PIPE_BYTES, PIPE_BYTES, 6 * packet_cost(PACKET))
    expected_small = (_SMALL, _SMALL, packet_cost(_SMALL))
    return large == expected_large and small == expected_small
