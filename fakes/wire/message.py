"""Answers and their bytes: uvicorn's status line, header order and casing."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Any

Headers = Sequence[tuple[str, str]]

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {
    413: "Request Entity Too Large",
    414: "Request-URI Too Long",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""As in Python 3.10 and 3.11, which the real server runs on; 3.13 words these four differently."""


@dataclass(slots=True)
class Answer:
    """The answer to one request.

    On the wire the headers are: ``date``, ``server``, ``headers``, ``content-length``,
    ``content-type``, ``late_headers``. With a ``stream`` the body is chunked, the length is left
    out, and the order is ``date``, ``server``, ``headers``, ``content-type``, ``late_headers``,
    ``transfer-encoding``. The head of a ``relayed`` answer is just its ``headers``: another server
    wrote them.
    """

    status: int = 200
    body: bytes = b""
    content_type: str | None = "application/json"
    headers: Headers = ()
    late_headers: Headers = ()
    stream: AsyncIterator[bytes] | None = None
    close: bool = False
    """Close the connection afterwards, even if the client asked to keep it."""
    close_code: int = 1000
    """With which a WebSocket is closed, if ``close`` is set."""
    relayed: bool = False
    reason: str = ""
    """The reason phrase of a relayed answer."""
    chunked: bool = True
    """A stream is framed in chunks.

    Otherwise its length is in the headers, or it ends with the connection.
    """
    length: int | None = None
    """Length of a stream in bytes, if known."""
    share: Callable[[], float] | None = None
    """Returns how much of a stream's content has been yielded, from 0 to 1, if the app knows.

    A fault that cuts a share off then strikes between two pieces.
    """
    release: Callable[[], None] | None = None
    """Called when the answer is no longer needed, whether or not it was sent.

    May be called more than once.
    """

    @classmethod
    def json(cls, content: Any, status: int = 200, headers: Headers = ()) -> Answer:
        """Build a compact JSON answer in UTF-8.

        Raise ValueError for what JSON or UTF-8 cannot represent.
        """
        return cls(status=status, body=dump_json(content), headers=headers)

    @classmethod
    def text(
        cls, text: str, status: int = 200, content_type: str = "text/plain; charset=utf-8"
    ) -> Answer:
        return cls(status=status, body=text.encode(), content_type=content_type)

    def with_body(self, body: bytes) -> Answer:
        """The same answer with another body."""
        if not self.relayed:
            return replace(self, body=body, stream=None)
        framing = ("content-length", "transfer-encoding")
        headers = _with_header(self.headers, framing, str(len(body)))
        return replace(self, body=body, stream=None, headers=headers)

    def with_type(self, content_type: str) -> Answer:
        """The same answer with another content type."""
        if not self.relayed:
            return replace(self, content_type=content_type)
        return replace(self, headers=_with_header(self.headers, ("content-type",), content_type))

    async def whole(self) -> Answer:
        """The same answer with its stream read to the end as the body."""
        if self.stream is None:
            return self
        pieces = [piece async for piece in self.stream]
        return self.with_body(b"".join(pieces))


def _with_header(headers: Headers, names: tuple[str, ...], value: str) -> Headers:
    """Replace the headers ``names`` by the first of them, in the same place or at the end."""
    wanted = names[0]
    changed: list[tuple[str, str]] = []
    is_there = False
    for name, old in headers:
        if name.lower() not in names:
            changed.append((name, old))
        elif not is_there:
            is_there = True
            # Spelt as it was, if it is the same header.
            changed.append((name if name.lower() == wanted else wanted, value))
    if not is_there:
        changed.append((wanted, value))
    return changed


# One encoder for all answers: json.dumps builds a new one on every call with options.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def dump_json(content: Any) -> bytes:
    """Encode JSON as Starlette does: compact, unescaped, keys in order, no NaN."""
    return _ENCODER.encode(content).encode("utf-8")


_LINE_ENDS = (0x85, 0x2028, 0x2029)
"""What some readers take for the end of a line: NEL, LINE SEPARATOR, PARAGRAPH SEPARATOR."""
SURROGATES = range(0xD800, 0xE000)
"""What UTF-8 cannot encode."""
_ESCAPED = {code: f"\\u{code:04x}" for code in (*_LINE_ENDS, *SURROGATES)}


def json_line(record: Any) -> str:
    """Write one line of a JSON Lines file, with what a reader might stumble over escaped."""
    return json.dumps(record, ensure_ascii=False).translate(_ESCAPED) + "\n"


def phrase_of(status: int) -> str:
    """The reason phrase of a status; empty for one that is not in the standards."""
    return _PHRASES.get(status, "")


# Chosen: the statuses of a busy second, and more.
@lru_cache(maxsize=64)
def _opening(status: int, second: int) -> str:
    """The first lines of an answer, which many answers within a second have in common."""
    return (
        f"HTTP/1.1 {status} {phrase_of(status)}\r\n"
        f"date: {formatdate(second, usegmt=True)}\r\n"
        "server: uvicorn\r\n"
    )


def render_head(answer: Answer, *, announce_close: bool = False) -> bytes:
    """The bytes up to and including the empty line."""
    if answer.relayed:
        return _relayed_head(answer, announce_close=announce_close)
    # The machine's date, also on virtual time: nothing depends on this header.
    parts = [_opening(answer.status, int(time.time()))]
    parts.extend(f"{name}: {value}\r\n" for name, value in answer.headers)
    if answer.stream is None:
        parts.append(f"content-length: {len(answer.body)}\r\n")
    if answer.content_type is not None:
        parts.append(f"content-type: {answer.content_type}\r\n")
    parts.extend(f"{name}: {value}\r\n" for name, value in answer.late_headers)
    if announce_close:
        parts.append("connection: close\r\n")
    if answer.stream is not None:
        parts.append("transfer-encoding: chunked\r\n")
    parts.append("\r\n")
    return "".join(parts).encode("latin-1", "replace")


def _relayed_head(answer: Answer, *, announce_close: bool) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {answer.reason}"]
    lines.extend(f"{name}: {value}" for name, value in answer.headers)
    if announce_close:
        lines.append("connection: close")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1", "replace")


def invalid_request() -> bytes:
    """What uvicorn sends when the bytes are not an HTTP request."""
    body = "Invalid HTTP request received."
    head = (
        f"{_opening(400, int(time.time()))}"
        "content-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(body)}\r\n"
        "connection: close\r\n"
        "\r\n"
    )
    return (head + body).encode("ascii")


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; the empty one ends it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
