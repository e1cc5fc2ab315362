"""Finds the requests in what a client sends, and rewrites those that uvicorn's parser accepts and aiohttp's refuses."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_REQUEST_LINE = re.compile(rb"[^\r\n]* HTTP/1\.[01](?:\r\n|$)")
_FOLDED = re.compile(rb"\r\n[ \t]+")
_FOLDED_MEANING = re.compile(
    rb"\r\n(?:connection|content-length|transfer-encoding|upgrade):[^\r\n]*\r\n[ \t]", re.IGNORECASE
)
"""A header that neither parser accepts in several lines."""
_ODD_NAME = re.compile(rb"[^:\s]+(?: [^:\s]+)+:")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_LONGEST_LENGTH = 18
"""Digits; aiohttp refuses longer ones."""
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)
_LONGEST_KNOWN = 2048
"""Bytes of a head that is remembered: the next requests of a client mostly have the same."""
_CLOSE = re.compile(rb"\r\n(?i:connection):[ \t]*close[ \t]*\r\n")


class _Head(NamedTuple):
    passed: bytes
    """As aiohttp wants it."""
    body: int
    """Bytes of the body, if they are known."""
    known: bool
    """The body has a length, or is not there."""
    last: bool


class RequestFilter:
    """Follows the requests of a connection, rewrites their heads and drops what comes after the last one.

    It gives up, and passes on everything as it comes, after a head that arrives in parts or a body without a length.
    """

    def __init__(self) -> None:
        self._left = 0
        """Bytes of the current body that are still to come."""
        self._last = False
        self._gave_up = False

    def pass_on(self, data: bytes) -> bytes:
        """Return what aiohttp is to read of it."""
        passed: list[bytes] = []
        at = 0
        while at < len(data) and not self._gave_up:
            if not self._left:
                if self._last:
                    return b"".join(passed)
                head, at = self._head(data, at)
                passed.append(head)
            body = data[at : at + self._left]
            at += len(body)
            self._left -= len(body)
            passed.append(body)
        return b"".join([*passed, data[at:]])

    def _head(self, data: bytes, at: int) -> tuple[bytes, int]:
        """Read the head of the request that begins here; return it as aiohttp wants it, and where it ends."""
        start = at
        while data[start : start + 1] in (b"\r", b"\n"):
            start += 1
        end = data.find(b"\r\n\r\n", start) + 4
        head = None
        if end >= 4:
            head = (_read_head if end - start > _LONGEST_KNOWN else _known_head)(data[start:end])
        if head is None:
            self._gave_up = True
            return b"", at
        self._left, self._gave_up, self._last = head.body, not head.known, head.last
        return head.passed, end


def _read_head(raw: bytes) -> _Head | None:
    """Return what a head says; None if it is not one."""
    if not _REQUEST_LINE.match(raw):
        return None
    head = lenient(raw)
    length = _LENGTH.search(head)
    known = _CHUNKED.search(head) is None and (length is None or len(length[1]) <= _LONGEST_LENGTH)
    # As uvicorn sees it: "Close" is not "close", and HTTP/1.0 has no keep-alive.
    last = _CLOSE.search(head) is not None or b" HTTP/1.0\r\n" in head
    return _Head(head, int(length[1]) if length and known else 0, known, last)


_known_head = lru_cache(maxsize=256)(_read_head)


def lenient(head: bytes) -> bytes:
    """Rewrite a head that has no Host or several, a header of several lines, or a space inside the name of one."""
    if _FOLDED_MEANING.search(head):
        return head
    first, *lines = _FOLDED.sub(b" ", head.removesuffix(b"\r\n\r\n")).split(b"\r\n")
    hosts = [line for line in lines if line[:5].lower() == b"host:"]
    others = [line for line in lines if line[:5].lower() != b"host:" and not _ODD_NAME.match(line)]
    if len(hosts) == 1 and len(others) == len(lines) - 1 and head.count(b"\r\n") == len(lines) + 2:
        return head
    return b"\r\n".join([first, *others, hosts[0] if hosts else b"Host: ", b"", b""])
