"""One request over one connection, byte for byte, and the answer with its exact headers, casing and
order.

A client library would normalise both, and those details are what drift compares.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from sfusion_tools.bounded_input import parse_json
from sfusion_tools.sandbox.endpoints import basic_auth

from .model import Probe

MAX_ANSWER = 64 * 2**20
"""Largest answer that is read; no probe asks for this much."""
_MAX_HEAD = 2**20
_MAX_HEADERS = 500
"""Headers of an answer, at most (chosen: more is an attack)."""


@dataclass(frozen=True)
class ProbeAnswer:
    """The answer to one request, or the failure that came instead."""

    status: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    failure: str = ""
    seconds: float = 0.0

    def header(self, name: str) -> str | None:
        """Look up a header case-insensitively; ``name`` is in lower case."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def json(self) -> Any:
        """Parse the body; None if it is not JSON."""
        try:
            return parse_json(self.body, "answer")
        except ValueError:
            return None


class NotConnected(Exception):
    """Raised when no connection can be made."""


@dataclass(frozen=True)
class Server:
    """An address, and what every request to it carries."""

    scheme: str
    host: str
    port: int
    base: str = ""
    query: str = ""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @classmethod
    def at(cls, url: str, headers: Mapping[str, str] | None = None) -> Server:
        """Build from a base URL; a user name in it becomes an Authorization header."""
        parts = urlsplit(url)
        carried = dict(headers or {})
        login = basic_auth(parts)
        if login is not None and "authorization" not in {name.lower() for name in carried}:
            carried["authorization"] = login
        return cls(
            scheme=parts.scheme,
            host=parts.hostname or "",
            port=parts.port or _default_port(parts.scheme),
            base=parts.path.rstrip("/"),
            query=parts.query,
            headers=tuple(carried.items()),
        )

    def can_send(self, probe: Probe) -> bool:
        """False for raw bytes if every request needs a header, a path prefix or a key: they cannot
        carry it."""
        return probe.request is not None or not (self.headers or self.base or self.query)

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == _default_port(self.scheme):
            return host
        return f"{host}:{self.port}"


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def request_bytes(probe: Probe, server: Server) -> bytes:
    if probe.request is None:
        return (probe.raw or "").encode("latin-1")
    request = probe.request
    target = server.base + request.path
    if server.query:
        target += ("&" if "?" in target else "?") + server.query
    content = request.content
    headers = {"Host": server.authority, **dict(server.headers), **request.sent_headers}
    if content or request.method in ("POST", "PUT", "PATCH"):
        headers["Content-Length"] = str(len(content))
    lines = [
        f"{request.method} {target} HTTP/1.1",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + content


async def exchange(
    server: Server, data: bytes, *, head_only: bool = False, timeout: float = 60.0
) -> ProbeAnswer:
    """Send bytes over a new connection and read one answer; raises NotConnected."""
    loop = asyncio.get_running_loop()
    context = ssl.create_default_context() if server.scheme == "https" else None
    try:
        async with asyncio.timeout(timeout):
            reader, writer = await asyncio.open_connection(
                server.host, server.port, ssl=context, limit=_MAX_HEAD
            )
    except TimeoutError:
        raise NotConnected(f"no connection within {timeout:g} s") from None
    except (OSError, ssl.SSLError) as error:
        raise NotConnected(reason(error)) from error
    began = loop.time()
    try:
        async with asyncio.timeout(timeout):
            writer.write(data)
            with contextlib.suppress(ConnectionError):  # there may still be an answer to read
                await writer.drain()
            answer = await _read_answer(reader, head_only)
    except TimeoutError:
        answer = ProbeAnswer(failure=f"no answer within {timeout:g} s")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            after = f"after {len(error.partial)} bytes of the answer"
        else:
            after = "without an answer"
        answer = ProbeAnswer(failure=f"the connection was closed {after}")
    except OSError:
        answer = ProbeAnswer(failure="the connection was reset")
    except (ValueError, asyncio.LimitOverrunError) as error:
        answer = ProbeAnswer(failure=f"the answer is not HTTP: {error}")
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()
    return replace(answer, seconds=loop.time() - began)


def reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted here ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}); is it http rather than https?"
    if isinstance(error, ConnectionRefusedError) or "Connect call failed" in str(error):
        return "connection refused"
    return error.strerror or str(error) or type(error).__name__


async def _read_answer(reader: asyncio.StreamReader, head_only: bool) -> ProbeAnswer:
    status, headers = await _head(reader)
    while 100 <= status < 200:
        status, headers = await _head(reader)
    answer = ProbeAnswer(status, headers)
    if head_only or status in (204, 304):
        return answer
    length = answer.header("content-length")
    if (answer.header("transfer-encoding") or "").lower().endswith("chunked"):
        body = await _chunks(reader)
    elif length is not None:
        body = await reader.readexactly(_bounded(int(length)))
    else:
        body = await reader.read(MAX_ANSWER)
        while more := await reader.read(MAX_ANSWER):
            body += more
            _bounded(len(body))
    return ProbeAnswer(status, headers, body)


async def _head(reader: asyncio.StreamReader) -> tuple[int, tuple[tuple[str, str], ...]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    version, _, rest = lines[0].partition(" ")
    if not version.startswith("HTTP/1.") or not rest[:3].isdigit():
        raise ValueError(f"it begins with {lines[0][:40]!r}")
    if len(lines) > _MAX_HEADERS:
        raise ValueError(f"it has {len(lines) - 1} headers")
    pairs = [line.partition(":") for line in lines[1:]]
    return int(rest[:3]), tuple((name, value.strip()) for name, _, value in pairs)


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = _bounded(int(line.split(b";")[0], 16))
        if size == 0:
            while await reader.readuntil(b"\r\n") != b"\r\n":
                pass  # trailers
            return body
        body += (await reader.readexactly(size + 2))[:-2]
        _bounded(len(body))


def _bounded(size: int) -> int:
    if not 0 <= size <= MAX_ANSWER:
        raise ValueError(f"it has {size} bytes")
    return size
