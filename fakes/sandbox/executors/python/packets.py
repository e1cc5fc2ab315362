"""How Linux's local sockets divide writes into packets, what these cost, and where the real server
stops reading.

The numbers are the kernel's, for pages of 4 KiB. Pure, except for `as_here`, which tests whether
they hold here.
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
"""Linux divides a large write to a local socket into pieces of this size; the kernel buffer holds
six, PIPE_BYTES."""
SEND_BUFFER = 212_992
"""The default of Linux, set explicitly so that every machine behaves the same."""
LEAST_ROOM = 33_000
"""What must be free for a smaller buffer to have the same effect: Linux divides writes of more than
half of it."""
SLACK = 2_500
"""How many bytes more than one large write the waiting data may cost and still count as one."""


def packet_cost(size: int) -> int:
    """Return the cost of one packet in Linux: whole pages, a power of two for the rest, and a
    header."""
    in_pages = min(size, _up(max(size - 3_776, 0), 4_096))
    head = _up(size - in_pages, 64) + 320
    return _up(in_pages, 4_096) + max(512, 1 << (head - 1).bit_length()) + 256


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def buffers_waiting(waiting: int, cost: int) -> int | None:
    """Return the maximum number of one-buffer writes that explain the cost of the waiting data;
    None if none do."""
    counts = range(waiting // 900 + 1, waiting // 16_384, -1)
    return next((count for count in counts if count * packet_cost(waiting // count) == cost), None)


def is_large_write(waiting: int, cost: int) -> bool:
    """Return whether the waiting bytes were written at once, judging by their cost."""
    whole, rest = divmod(waiting, PACKET)
    if not whole or cost - whole * packet_cost(PACKET) - packet_cost(rest) >= SLACK:
        return False
    return (
        buffers_waiting(waiting, cost) is None
    )  # a few buffers can cost almost as little as one large write


def in_transit(waiting: int, cost: int) -> bool:
    """Return whether the next piece of a large write seems to be on its way: it has its cost, but
    not yet its bytes."""
    whole, rest = divmod(waiting, PACKET)
    return whole > 0 and rest == 0 and 0 < cost - whole * packet_cost(PACKET) <= packet_cost(PACKET)


def stream_pair() -> tuple[socket.socket, socket.socket]:
    """Return a pair of sockets, ours and the program's, with the kernel buffer size of the
    recordings."""
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
    """End a hold when nothing more is read: the program may write as much as if the buffer had its
    whole size.

    So much is removed, and the buffer made smaller by as much, that three quarters of it are free:
    then the kernel tells a program that polls of it, too.
    """
    cost = full = cost_waiting(theirs)
    if SEND_BUFFER - full < LEAST_ROOM:
        let_go_on(theirs)
        return
    left = bytes_waiting(ours)
    while left and 4 * cost > SEND_BUFFER - (full - cost):
        left -= len(ours.recv(min(left, 1_024)))
        cost = (
            cost_waiting(theirs) if left else 0
        )  # what it writes into the empty buffer stays there
    _set_buffer(theirs, SEND_BUFFER - (full - cost))
    if (
        not left and 4 * cost_waiting(theirs) > SEND_BUFFER - full
    ):  # it wrote before that, and may wait
        _wake(theirs)


def _wake(theirs: socket.socket) -> None:
    """Let a writer that waits look again for space, though the kernel would not tell it of so
    little."""
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


@cache
def as_here() -> bool:
    """Test whether the sockets of this machine behave like this."""
    if not sys.platform.startswith("linux"):
        return False
    ours, theirs = stream_pair()
    theirs.setblocking(False)
    with ours, theirs:
        try:
            large = theirs.send(bytes(4 * PIPE_BYTES)), bytes_waiting(ours), cost_waiting(theirs)
            ours.recv(PIPE_BYTES)
            small = theirs.send(bytes(8_192)), bytes_waiting(ours), cost_waiting(theirs)
        except OSError:
            return False
    return large == (PIPE_BYTES, PIPE_BYTES, 6 * packet_cost(PACKET)) and small == (
        8_192,
        8_192,
        packet_cost(8_192),
    )
