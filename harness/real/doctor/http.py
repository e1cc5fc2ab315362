"""Single HTTP requests: the exact answer, or the exact reason why there was none. No server
behaviour raises."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sfusion_tools._version import __version__
from sfusion_tools.sandbox.endpoints import redact

_URL = re.compile(r"\w+://[^\s'\"]+")
_LONGEST = 4 * 2**20
"""Bytes of an answer that are read. Chosen: far more than a probe's answer needs."""
_HTTP = b"HTTP/"
"""What every answer of HTTP/1 begins with."""

Why = Literal[
    "dns", "refused", "connect", "certificate", "tls", "proxy", "timeout", "lost", "garbled"
]
_WHYS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], Why], ...] = (
    (aiohttp.ClientConnectorDNSError, "dns"),
    (aiohttp.ClientConnectorCertificateError, "certificate"),
    (aiohttp.ClientSSLError, "tls"),
    (aiohttp.ConnectionTimeoutError, "connect"),
    ((aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError), "proxy"),
    (aiohttp.ClientConnectorError, "refused"),
    (TimeoutError, "timeout"),
    ((aiohttp.ClientConnectionError, OSError), "lost"),
    (Exception, "garbled"),
)
"""Errors and what they mean; the first match counts."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float

    @property
    def content_type(self) -> str:
        return self.headers.get("Content-Type", "")


@dataclass(frozen=True, slots=True)
class NoAnswer:
    why: Why
    text: str
    seconds: float


async def send(
    session: aiohttp.ClientSession,
    url: str,
    body: bytes | None = None,
    *,
    within: float,
    proxy: str | None = None,
) -> HttpAnswer | NoAnswer:
    """POST a JSON body, or GET if there is none, as the sandbox's own client does; redirects are
    not followed."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    method = "GET"
    headers: dict[str, str] = {}
    if body is not None:
        method = "POST"
        headers["Content-Type"] = "application/json"
    try:
        request = session.request(
            method, URL(url), data=body, headers=headers, proxy=proxy, allow_redirects=False
        )
        async with asyncio.timeout(within), request as answer:
            content = await _read(answer)
            return HttpAnswer(answer.status, answer.headers, content, loop.time() - began)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        why = next(why for kinds, why in _WHYS if isinstance(error, kinds))
        return NoAnswer(why, _reason(error), loop.time() - began)


def open_http(headers: Mapping[str, str], connect: float) -> aiohttp.ClientSession:
    """``connect`` is how many seconds connecting may take."""
    sent = CIMultiDict(
        {"User-Agent": f"sfusion-doctor/{__version__}", "Accept-Encoding": "identity"}
    )
    sent.update(headers)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect),
        headers=sent,
        cookie_jar=aiohttp.DummyCookieJar(),
    )


async def _read(answer: aiohttp.ClientResponse) -> bytes:
    parts = bytearray()
    async for part in answer.content.iter_any():
        parts += part
        if len(parts) > _LONGEST:
            break
    return bytes(parts)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        why = error.certificate_error
        return getattr(why, "verify_message", "") or str(why)
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
        if isinstance(error, ssl.SSLError):
            return error.reason or str(error)
        return error.strerror or str(error) or type(error).__name__
    # aiohttp shows a bad status line on several lines with a caret below it.
    if isinstance(error, aiohttp.ClientResponseError):
        text = error.message.rstrip(" \n^")
    else:
        text = str(error)
    # It also quotes the URL, which may hold a password or a token.
    text = _URL.sub(lambda found: redact(found[0]), " ".join(text.split()))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


async def speaks_plain_http(host: str, port: int, *, within: float) -> bool:
    """Does the port answer unencrypted HTTP?"""
    request = f"GET /v1/ping HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        return await _connect(host, port, within, sent=request) == _HTTP
    except (OSError, TimeoutError):
        return False


async def speaks_tls(host: str, port: int, *, within: float) -> bool:
    """Does the port complete a TLS handshake, whatever its certificate?"""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _connect(host, port, within, context)
    except (OSError, TimeoutError):
        return False
    return True


async def connects(host: str, port: int, *, within: float) -> NoAnswer | None:
    """Return None if the port accepts connections, otherwise the reason why not."""
    began = asyncio.get_running_loop().time()
    why: Why = "connect"
    try:
        await _connect(host, port, within)
        return None
    except TimeoutError:
        text = f"no connection within {within:g} s"
    except OSError as error:
        why = "dns" if isinstance(error, socket.gaierror) else "refused"
        # asyncio joins the failures of several addresses into one text without an errno.
        if error.errno and error.errno > 0:
            text = os.strerror(error.errno)
        else:
            text = error.strerror or str(error)
    return NoAnswer(why, text, asyncio.get_running_loop().time() - began)


async def _connect(
    host: str, port: int, within: float, tls: ssl.SSLContext | None = None, *, sent: bytes = b""
) -> bytes:
    """Open a connection and send a request, if there is one; return the first bytes of the
    answer."""
    async with asyncio.timeout(within):
        reader, writer = await asyncio.open_connection(host, port, ssl=tls)
        try:
            writer.write(sent)
            return await reader.read(len(_HTTP)) if sent else b""
        finally:
            writer.transport.abort()
