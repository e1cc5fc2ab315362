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
import termios

STOP_ABOVE = 131_072
"""The stream is not read any more once it holds more than this."""
PACKET = 36_544
"""Into pieces of this size Linux cuts a large write to a local socket."""
WHOLE = 6 * PACKET
"""What the kernel buffer of the real server's sockets takes of one large write: 219,264 bytes."""
SMALL = 8_192
"""Writers that buffer write this much at a time; so much is read past the mark of theirs."""
SEND_BUFFER = 212_992
"""Linux's default, asked for so that a machine set up otherwise behaves the same."""
SETTLE = 0.002
"""Seconds after which a large write that did not grow any more has been written as far as it goes."""


def output_socket() -> tuple[socket.socket, socket.socket]:
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


def next_read(waiting: int, held: int) -> int:
    """Say how much to read now of `waiting` bytes when `held` are held already.

    A large write is read in one go. Small ones are read only just past the mark, however many have piled up, so
    that a busy machine cuts where an idle one does.
    """
    if waiting >= PACKET:
        return WHOLE
    return max(STOP_ABOVE - held, SMALL)


class Capture:
    """One output stream of one program."""

    def __init__(self, stream: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """Read from `stream` as data comes."""
        self._stream = stream
        self._loop = loop
        self._held = bytearray()
        self._reading = True
        self._before = 0
        self._timer: asyncio.TimerHandle | None = None
        loop.add_reader(stream, self._readable)

    def finish(self) -> bytes:
        """Take what has arrived, stop reading and close; a second time gives the same."""
        while self._reading and (waiting := self._waiting()):
            self._read(next_read(waiting, len(self._held)))
        if self._stream.fileno() >= 0:
            self._stop()
            self._stream.close()
        return bytes(self._held)

    def _readable(self) -> None:
        waiting = self._waiting()
        if PACKET <= waiting < WHOLE and waiting != self._before:
            # A large write may be under way, packet by packet: look again when it has had time to go on.
            self._before = waiting
            self._loop.remove_reader(self._stream)
            self._timer = self._loop.call_later(SETTLE, self._look_again)
            return
        self._before = 0
        self._read(next_read(waiting, len(self._held)))

    def _look_again(self) -> None:
        self._timer = None
        self._loop.add_reader(self._stream, self._readable)
        self._readable()

    def _read(self, size: int) -> None:
        try:
            data = self._stream.recv(size)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._held += data
        if not data or len(self._held) > STOP_ABOVE:
            self._stop()

    def _stop(self) -> None:
        self._reading = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._loop.remove_reader(self._stream)

    def _waiting(self) -> int:
        return int(struct.unpack("i", fcntl.ioctl(self._stream, termios.FIONREAD, b"\0" * 4))[0])
