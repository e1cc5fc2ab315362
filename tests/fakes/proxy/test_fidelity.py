"""Requests and answers pass the proxy byte for byte."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import Cassette, FakeSandbox
from tests.fakes.proxy.scripted_upstream import OK, UpstreamConnection, always, scripted_upstream
from tests.fakes.sandbox.recordings import HERE, Recording, recordings
from tests.fakes.wire.raw import Raw, get, one, post, run_code, whole

FILES = ("http", "validation", "run_code_python", "run_code_languages", "run_jupyter")


def wire(recording: Recording) -> bytes:
    """The recorded request as bytes, with Connection: close."""
    request = recording.request
    body = b""
    if "json" in request:
        body = json.dumps(request["json"]).encode()
    elif "raw_body" in request:
        body = request["raw_body"].encode()
    elif "raw_body_b64" in request:
        body = base64.b64decode(request["raw_body_b64"])
    headers = {
        "host": "sandbox",
        "content-length": str(len(body)),
        **request.get("headers", {}),
        "connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"{request['method']} {request['path']} HTTP/1.1\r\n{lines}\r\n".encode() + body


@asynccontextmanager
async def both(file: str) -> AsyncIterator[tuple[int, int]]:
    """The ports of two equal fakes, the second behind a proxy."""
    options = {}
    if file.startswith("run"):
        options = {"executor": "recorded", "cassette": Cassette.load(HERE / f"{file}.jsonl")}
    async with (
        FakeSandbox(**options) as direct,
        FakeSandbox(**options) as hidden,
        FaultProxy(hidden.url) as proxy,
    ):
        yield direct.port, proxy.port


def steady(answer: tuple[bytes, str]) -> tuple[bytes, str]:
    """Remove the date, the only thing that may differ."""
    data, end = answer
    return re.sub(rb"^date: [^\r]+", b"date: NOW", data, count=1, flags=re.MULTILINE), end


@pytest.mark.parametrize("file", FILES)
async def test_recorded_requests_are_answered_as_without_the_proxy(file: str) -> None:
    unlike = []
    async with both(file) as (direct, proxied):
        for recording in recordings(file):
            request = wire(recording)
            answers = await asyncio.gather(whole(direct, request), whole(proxied, request))
            if steady(answers[0]) != steady(answers[1]):
                unlike.append((recording.name, answers))
    assert unlike == []


async def test_keep_alive_and_close_follow_the_client() -> None:
    connections = 0

    async def serve(peer: UpstreamConnection) -> None:
        nonlocal connections
        connections += 1
        await always(OK)(peer)

    async with scripted_upstream(serve) as server, FaultProxy(server.url) as proxy:
        async with Raw(proxy.port) as raw:
            for _ in range(3):
                assert (await raw.ask(get("/a"))).body == b"ok"
        for _ in range(3):
            got, end = await whole(
                proxy.port, b"GET /a HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
            )
            assert got.endswith(b"connection: close\r\n\r\nok")
            assert end == "closed"
    assert connections == 1, "six requests on four connections share one connection to the server"


HEADERS = (
    b"Date: yesterday\r\nServer: other/1.0\r\nX-A: 1\r\nset-cookie: a=1\r\nSet-Cookie: "
    b"b=2\r\nx-caf: \xe9\r\n"
    b"Content-Type: text/plain\r\nContent-Length: 2\r\n"
)


async def test_headers_keep_their_order_case_and_duplicates() -> None:
    sent = b"HTTP/1.1 299 Fine By Me\r\n" + HEADERS
    async with (
        scripted_upstream(always(sent + b"\r\nok")) as server,
        FaultProxy(server.url) as proxy,
    ):
        got, _ = await whole(proxy.port, get("/a").replace(b"host:", b"connection: close\r\nhost:"))
    assert got == sent + b"connection: close\r\n\r\nok"


@pytest.mark.parametrize(
    ("named", "left"),
    [
        (
            b"connection: keep-alive, x-mine\r\nx-mine: 1\r\nkeep-alive: "
            b"timeout=5\r\nx-other: 2\r\n",
            b"x-other: 2\r\n",
        ),
        (
            b"proxy-authenticate: Basic\r\nupgrade: h2c\r\ntrailer: x\r\nte: "
            b"trailers\r\nproxy-connection: a\r\n",
            b"",
        ),
    ],
)
async def test_hop_by_hop_headers_are_not_forwarded(named: bytes, left: bytes) -> None:
    seen: list[tuple[bytes, bytes]] = []
    sent = b"HTTP/1.1 200 OK\r\n" + named + OK.partition(b"\r\n")[2]
    async with scripted_upstream(always(sent, seen)) as server, FaultProxy(server.url) as proxy:
        answer = await one(proxy.port, b"GET /a HTTP/1.1\r\nhost: localhost\r\n" + named + b"\r\n")
    assert answer.head == b"HTTP/1.1 200 OK\r\n" + left + b"content-length: 2\r\n\r\n"
    sent = seen[0][0].split(b"\r\n", 2)[2]
    assert re.fullmatch(re.escape(left) + rb"via: 1\.1 sfusion-[0-9a-f]{8}\r\n\r\n", sent), sent


async def test_request_arrives_as_it_was_sent() -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with scripted_upstream(always(OK, seen)) as server, FaultProxy(server.url) as proxy:
        body = bytes(range(256))
        headers = (
            "Accept: a\r\nUser-Agent: me\r\nX-Two: 1\r\nx-two: 2\r\nContent-Type: "
            "weird/one\r\nVia: 1.0 fred\r\n"
        )
        await one(proxy.port, post("/run_code", body, headers))
    head, sent = seen[0]
    assert sent == body
    via = re.search(rb"via: 1\.0 fred, (1\.1 sfusion-[0-9a-f]{8})\r\n", head)
    assert via
    assert head == (
        b"POST /run_code HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept: a\r\nUser-Agent: "
        b"me\r\nX-Two: 1\r\nX-Two: 2\r\n"
        b"Content-Type: weird/one\r\nvia: 1.0 fred, %b\r\nContent-Length: 256\r\n\r\n"
        % (server.port, via[1])
    )


@pytest.mark.parametrize(
    ("target", "sent"),
    [
        ("/", "/"),
        ("/a%2Fb%20c;d=1,2", "/a%2Fb%20c;d=1,2"),
        ("/b//c/./d", "/b//c/./d"),
        ("/a?b=c+d&b=%zz&&=", "/a?b=c+d&b=%zz&&="),
        ("/a?", "/a"),
        ("/a#fragment", "/a"),
        ("//two", "//two"),
        ("http://elsewhere/x?y", "/x?y"),
        ("*", "/"),
    ],
)
async def test_paths_and_queries_are_unchanged(target: str, sent: str) -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with (
        scripted_upstream(always(OK, seen)) as server,
        FaultProxy(server.url + "/base/") as proxy,
    ):
        await one(proxy.port, f"OPTIONS {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
    assert seen[0][0].split(b"\r\n")[0] == f"OPTIONS /base{sent} HTTP/1.1".encode()


@pytest.mark.parametrize(
    "method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"]
)
async def test_every_method_passes_with_its_body(method: str) -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with scripted_upstream(always(OK, seen)) as server, FaultProxy(server.url) as proxy:
        assert (
            await one(proxy.port, post("/x", b"body").replace(b"POST", method.encode()))
        ).body == b"ok"
    assert seen[0][0].startswith(f"{method} /x HTTP/1.1\r\n".encode())
    assert seen[0][1] == b"body"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n",
        b'HTTP/1.1 304 Not Modified\r\netag: "a"\r\ncontent-length: 17\r\n\r\n',
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 29\r\n\r\n"
        + gzip.compress(b"123456789", mtime=0),
        b"HTTP/1.1 404 \r\ncontent-length: 2\r\n\r\nno",
    ],
    ids=["204", "304", "empty", "gzip", "no reason"],
)
async def test_answers_of_every_framing_pass(answer: bytes) -> None:
    async with (
        scripted_upstream(always(answer)) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(get("/a") + get("/b"))
        assert await raw.reader.readexactly(2 * len(answer)) == answer * 2


async def test_head_has_the_headers_of_get_and_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\nx-a: 1\r\n\r\n"
    async with (
        scripted_upstream(always(head)) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(get("/a").replace(b"GET", b"HEAD") * 2)
        assert await raw.reader.readexactly(2 * len(head)) == head * 2


async def test_interim_answers_are_skipped() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    async with scripted_upstream(always(early + OK)) as server, FaultProxy(server.url) as proxy:
        assert (await one(proxy.port, get("/a"))).body == b"ok"


async def test_client_that_expects_100_continue_gets_it() -> None:
    async with (
        scripted_upstream(always(OK)) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        head, _, body = post("/x", b"body", "expect: 100-continue\r\n").partition(b"\r\n\r\n")
        await raw.send(head + b"\r\n\r\n")
        assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await raw.send(body)
        assert (await raw.answer()).body == b"ok"


@pytest.mark.parametrize(
    ("location", "rewritten"),
    [
        ("http://127.0.0.1:PORT/base/x?y", "http://proxy/x?y"),
        ("http://127.0.0.1:PORT/base", "http://proxy/"),
        ("/base/x", "/x"),
        ("http://127.0.0.1:PORT/basement", "http://127.0.0.1:PORT/basement"),
        ("http://elsewhere/base/x", "http://elsewhere/base/x"),
        ("x", "x"),
    ],
)
async def test_redirect_leads_through_the_proxy_and_is_not_followed(
    location: str, rewritten: str
) -> None:
    async def serve(peer: UpstreamConnection) -> None:
        head, _ = await peer.request()
        place = location.replace(
            "PORT", head.split(b"Host: 127.0.0.1:")[1].split(b"\r")[0].decode()
        )
        await peer.send(
            f"HTTP/1.1 307 There\r\nLocation: {place}\r\ncontent-length: 0\r\n\r\n".encode()
        )

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url + "/base", allow_hosts=["proxy"]) as proxy,
    ):
        answer = await one(proxy.port, get("/a").replace(b"host: localhost", b"host: proxy"))
    assert answer.status == 307
    assert answer.header("Location") == rewritten.replace("PORT", str(server.port))


async def test_query_of_the_upstream_precedes_that_of_the_request() -> None:
    seen: list[tuple[bytes, bytes]] = []
    async with (
        scripted_upstream(always(OK, seen)) as server,
        FaultProxy(f"{server.url}/f/run_code?fn=1") as proxy,
    ):
        await one(proxy.port, get("/run_code?x=2"))
        await one(proxy.port, get("/run_code#part"))
    assert [head.split(b" ")[1] for head, _ in seen] == [
        b"/f/run_code?fn=1&x=2",
        b"/f/run_code?fn=1",
    ]


async def test_long_heads_and_many_headers_pass() -> None:
    long = b"x-long: " + b"v" * 100_000 + b"\r\n" + b"x-many: 1\r\n" * 300
    seen: list[tuple[bytes, bytes]] = []
    answer = b"HTTP/1.1 200 OK\r\n" + long + OK.partition(b"\r\n")[2]
    async with (
        scripted_upstream(always(answer, seen)) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(b"GET /a HTTP/1.1\r\nhost: localhost\r\n" + long + b"\r\n")
        assert await raw.reader.readexactly(len(answer)) == answer
    assert long in seen[0][0]


async def test_long_body_is_forwarded_while_it_arrives() -> None:
    body = b"# sfusion:call=big" + bytes(range(256)) * 8192  # 2 MiB
    first = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        head = await peer.head()
        assert f"content-length: {len(body)}".encode() in head.lower()
        got = await peer.reader.readexactly(1 << 20)
        first.set()
        got += await peer.reader.readexactly(len(body) - len(got))
        assert got == body
        await peer.send(OK)

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        request = post("/run_code", body)
        most = len(request) - len(body) // 4
        await raw.send(request[:most])
        await first.wait()  # the server has begun to hear what is not all sent
        await raw.send(request[most:])
        assert (await raw.answer()).body == b"ok"
    assert proxy.ledger.calls["big"].replied == 1


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, (1 << 20) + 9999])
@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_bodies_around_the_buffer_limit_pass_complete(size: int, framing: str) -> None:
    body = b"x" * size
    bodies = []

    async def serve(peer: UpstreamConnection) -> None:
        head, sent = await peer.request()
        while b"chunked" in head.lower() and (length := int(await peer.reader.readline(), 16)):
            sent += await peer.reader.readexactly(length)
            await peer.reader.readline()
        bodies.append(sent)
        await peer.send(OK)

    request = post("/run_code", body)
    if framing == "chunked":
        request = (
            b"POST /x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: "
            b"chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
        ) % (
            size,
            body,
        )
    async with scripted_upstream(serve) as server, FaultProxy(server.url) as proxy:
        assert (await one(proxy.port, request)).body == b"ok"
    assert bodies == [body]


async def test_long_request_that_is_not_forwarded_is_still_answered() -> None:
    rules = [{"what": {"status": 503}}]
    async with (
        scripted_upstream(always(OK)) as server,
        FaultProxy(server.url, faults=rules) as proxy,
        Raw(proxy.port) as raw,
    ):
        sending = asyncio.create_task(raw.send(post("/run_code", b"x" * 3_000_000)))
        assert (await raw.answer()).status == 503
        await sending
        proxy.clear_faults()
        assert (await raw.ask(get("/x"))).body == b"ok", "the connection stays open"


async def test_chunked_request_passes() -> None:
    bodies = []

    async def serve(peer: UpstreamConnection) -> None:
        while True:
            bodies.append((await peer.request())[1])
            await peer.send(OK)

    async with scripted_upstream(serve) as server, FaultProxy(server.url) as proxy:
        chunked = (
            b"POST /x HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: "
            b"chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        )
        assert (await one(proxy.port, chunked)).body == b"ok"
    assert bodies == [b"abcde"], "a body that was read completely is sent with its length"


async def test_upstream_that_closes_after_each_answer_loses_no_request() -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        for _ in range(3):
            await raw.send(get("/a"))
            head = await raw.reader.readuntil(b"\r\n\r\n")
            assert head == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            got = await raw.reader.readuntil(b"0\r\n\r\n")
            assert (
                b"".join(re.split(rb"\r\n[0-9a-f]*\r\n|^[0-9a-f]+\r\n", b"\r\n" + got))[:13]
                == b"until the end"
            )


async def test_http_1_0_client_gets_a_stream_to_its_end() -> None:
    answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    async with scripted_upstream(always(answer)) as server, FaultProxy(server.url) as proxy:
        assert await whole(proxy.port, b"GET /a HTTP/1.0\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\n\r\nabc",
            "closed",
        )


@pytest.fixture
async def proxy() -> AsyncIterator[FaultProxy]:
    async with FakeSandbox() as sandbox, FaultProxy(sandbox.url) as proxy:
        yield proxy


async def test_bytes_that_are_not_http_are_refused_by_the_proxy(proxy: FaultProxy) -> None:
    got, end = await whole(proxy.port, b"NOT HTTP\r\n\r\n")
    assert got.startswith(b"HTTP/1.1 400 ")
    assert end == "closed"
    assert (await one(proxy.port, run_code())).status == 200
