"""Requests are sent byte for byte, and answers are read exactly as they arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion.harness.real.probes.raw_http import (
    NotConnected,
    ProbeAnswer,
    Server,
    exchange,
    request_bytes,
)
from tests.patience import PATIENCE
from tests.ports import closed_port


def probe(request: ProbeRequest) -> Probe:
    return Probe(id="a/b", about="Any question will do.", request=request)


def test_a_request_carries_its_own_and_the_servers_headers() -> None:
    server = Server.at("http://team:s%C3%A9cret@sandbox.test:81/base/?key=k1", {"X-Team": "a"})
    request = ProbeRequest(path="/run_code?x=1", json={"code": "é"}, headers={"accept": "*/*"})
    sent = request_bytes(probe(request), server)
    head, body = sent.split(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST /base/run_code?x=1&key=k1 HTTP/1.1",
        b"Host: sandbox.test:81",
        b"X-Team: a",
        b"authorization: Basic dGVhbTpzw6ljcmV0",
        b"accept: */*",
        b"content-type: application/json",
        b"Content-Length: 18",
    ]
    assert body == b'{"code": "\\u00e9"}'


def test_raw_bytes_are_sent_as_they_are() -> None:
    raw = Probe(id="a/b", about="Any question will do.", raw="\x00\xff\r\n")
    assert request_bytes(raw, Server.at("http://sandbox.test")) == b"\x00\xff\r\n"


def test_the_host_header_omits_the_default_port() -> None:
    assert Server.at("https://sandbox.test").authority == "sandbox.test"
    assert Server.at("http://[::1]:80").authority == "[::1]"
    assert Server.at("http://sandbox.test:443").authority == "sandbox.test:443"


@asynccontextmanager
async def saying(answer: bytes, *, hang: bool = False) -> AsyncIterator[Server]:
    """A server that gives the same answer to every request."""
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        if hang:
            await over.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Server("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        over.set()


@pytest.mark.parametrize(
    ("sent", "status", "headers", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nX-A: b \r\ncontent-length: 2\r\n\r\nhi",
            200,
            (("X-A", "b"), ("content-length", "2")),
            b"hi",
        ),
        (b"HTTP/1.0 404 No\r\n\r\nto the end", 404, (), b"to the end"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;x=1\r\nhi\r\n3\r\n "
            b"yo\r\n0\r\nt: 1\r\n\r\n",
            200,
            (("transfer-encoding", "chunked"),),
            b"hi yo",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 None\r\n\r\n", 204, (), b""),
    ],
)
async def test_an_answer_is_read_exactly(
    sent: bytes, status: int, headers: tuple[tuple[str, str], ...], body: bytes
) -> None:
    async with saying(sent) as server:
        answer = await exchange(server, b"GET / HTTP/1.1\r\n\r\n", timeout=PATIENCE)
    assert (answer.status, answer.headers, answer.body, answer.failure) == (
        status,
        headers,
        body,
        "",
    )


async def test_the_answer_to_head_has_no_body_whatever_its_length() -> None:
    async with saying(b"HTTP/1.1 200 OK\r\ncontent-length: 22\r\n\r\n", hang=True) as server:
        answer = await exchange(
            server, b"HEAD / HTTP/1.1\r\n\r\n", head_only=True, timeout=PATIENCE
        )
    assert (answer.header("content-length"), answer.body) == ("22", b"")


@pytest.mark.parametrize(
    ("sent", "failure"),
    [
        (b"", "the connection was closed without an answer"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi",
            "the connection was closed after 2 bytes of the answer",
        ),
        (
            b"220 mail.test ESMTP\r\n\r\n",
            "the answer is not HTTP: it begins with '220 mail.test ESMTP'",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n",
            "the answer is not HTTP: invalid literal",
        ),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "the answer is not HTTP: it has 99999999999 bytes",
        ),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
            "the answer is not HTTP: invalid literal",
        ),
    ],
)
async def test_an_incomplete_answer_is_a_failure(sent: bytes, failure: str) -> None:
    async with saying(sent) as server:
        answer = await exchange(server, b"GET / HTTP/1.1\r\n\r\n", timeout=PATIENCE)
    assert answer.status is None
    assert answer.failure.startswith(failure)


async def test_a_missing_answer_is_a_failure() -> None:
    async with saying(b"", hang=True) as server:
        answer = await exchange(server, b"GET / HTTP/1.1\r\n\r\n", timeout=2)
    assert answer.failure == "no answer within 2 s"


async def test_a_closed_port_raises_not_connected() -> None:
    with pytest.raises(NotConnected, match="connection refused"):
        await exchange(Server("http", "127.0.0.1", closed_port()), b"x", timeout=PATIENCE)


async def test_https_to_a_plain_server_raises_not_connected() -> None:
    async with saying(b"HTTP/1.1 400 Bad\r\n\r\n") as server:
        with pytest.raises(NotConnected, match="is it http rather than https"):
            await exchange(Server("https", server.host, server.port), b"x", timeout=PATIENCE)


def test_header_lookup_ignores_case() -> None:
    assert ProbeAnswer(200, (("Content-Type", "a"),)).header("content-type") == "a"
    assert ProbeAnswer(200).header("content-type") is None
