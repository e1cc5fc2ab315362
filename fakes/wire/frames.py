"""WebSocket frames (RFC 6455): bytes to messages and back. No I/O."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from enum import IntEnum

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""What the standard appends to the client's key."""
LONGEST_MESSAGE = 16 * 1024 * 1024
"""Bytes of a message that is read (chosen: larger than any action or program)."""


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class FrameError(Exception):
    """Raised when what came is not the protocol; ``code`` is for the close frame."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


@dataclass(frozen=True, slots=True)
class SocketMessage:
    """A whole message, or a control frame."""

    opcode: Opcode
    data: bytes

    @property
    def close_code(self) -> int:
        """The code of a close frame; 1005 when it has none."""
        return int.from_bytes(self.data[:2], "big") if len(self.data) >= 2 else 1005


def accept_key(key: str) -> str:
    """The server's answer to the key of a handshake."""
    digest = hashlib.sha1(key.encode("latin-1", "replace") + _GUID).digest()
    return base64.b64encode(digest).decode()


def frame(opcode: Opcode, data: bytes) -> bytes:
    """A whole message as a server sends it: in one frame, without a mask."""
    head = bytes([0x80 | opcode])
    size = len(data)
    if size < 126:
        return head + bytes([size]) + data
    if size < 1 << 16:
        return head + b"\x7e" + size.to_bytes(2, "big") + data
    return head + b"\x7f" + size.to_bytes(8, "big") + data


def close_frame(code: int, reason: str = "") -> bytes:
    """A frame that begins the end of the connection."""
    return frame(Opcode.CLOSE, code.to_bytes(2, "big") + reason.encode()[:120])


class FrameReader:
    """Puts messages together from what a client sends, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._opcode: Opcode | None = None
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[SocketMessage]:
        """Take bytes; return the messages that are now whole. Raise FrameError."""
        self._buffer += data
        messages = []
        while True:
            message, is_enough = self._next()
            if message is not None:
                messages.append(message)
            if not is_enough:
                return messages

    def _next(self) -> tuple[SocketMessage | None, bool]:
        """Read one frame; return the message that it ends, and whether there was a whole frame."""
        buffer = self._buffer
        if len(buffer) < 2:
            return None, False
        if buffer[0] & 0x70:
            raise FrameError(1002, "reserved bits are set")
        if not buffer[1] & 0x80:
            raise FrameError(1002, "a client must mask its frames")
        opcode = _opcode(buffer[0] & 0x0F)
        size, start = _size(buffer)
        if self._size + size > LONGEST_MESSAGE:
            raise FrameError(1009, "the message is too long")
        end = start + 4 + size
        if len(buffer) < end or start == 0:
            return None, False

        mask = bytes(buffer[start : start + 4])
        data = _unmasked(bytes(buffer[start + 4 : end]), mask)
        is_last = bool(buffer[0] & 0x80)
        del buffer[:end]
        return self._collect(opcode, data, is_last=is_last), True

    def _collect(self, opcode: Opcode, data: bytes, *, is_last: bool) -> SocketMessage | None:
        if opcode >= Opcode.CLOSE:
            return SocketMessage(opcode, data)
        if (opcode is Opcode.CONTINUATION) == (self._opcode is None):
            raise FrameError(1002, "a fragment does not continue a message")
        self._opcode = self._opcode or opcode
        self._parts.append(data)
        self._size += len(data)
        if not is_last:
            return None
        message = SocketMessage(self._opcode, b"".join(self._parts))
        self._opcode = None
        self._parts.clear()
        self._size = 0
        return message


def _opcode(number: int) -> Opcode:
    try:
        return Opcode(number)
    except ValueError:
        raise FrameError(1002, f"there is no opcode {number}") from None


def _size(buffer: bytearray) -> tuple[int, int]:
    """The size of the data, and where the mask begins; 0 if that has not come yet."""
    short = buffer[1] & 0x7F
    if short < 126:
        return short, 2
    end = 4 if short == 126 else 10
    if len(buffer) < end:
        return 0, 0
    return int.from_bytes(buffer[2:end], "big"), end


def _unmasked(data: bytes, mask: bytes) -> bytes:
    if not data:
        return data
    repeated = (mask * (len(data) // 4 + 1))[: len(data)]
    mixed = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
    return mixed.to_bytes(len(data), "big")
