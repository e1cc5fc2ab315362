"""The bytes on the wire are uvicorn's: status line, header order and casing, keep-alive, and broken
HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire import Answer, Request, WireApp, WireServer
from sfusion_tools.sandbox.public_transport import is_readable
from tests.cases import every
from tests.fakes.wire.raw import PING, Raw, get, one, post, run_code

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "uvicorn_bytes.jsonl").read_text().splitlines()
]


@every(CASES, lambda case: case["name"])
async def test_answers_byte_for_byte(case: dict[str, Any]) -> None:
    wanted = case["receive"].encode("latin-1")
    async with FakeSandbox(allow_hosts=["*"]) as sandbox, Raw(sandbox.port) as raw:
        wanted = wanted.replace(b"<ADDRESS>", f"127.0.0.1:{sandbox.port}".encode())
        await raw.send(case["send"].encode("latin-1"))
        if case["then"] == "open":
            date = len(b"Sun, 15 Nov 2026 01:34:39 GMT") - len(b"<DATE>")
            got = await raw.reader.readexactly(len(wanted) + wanted.count(b"<DATE>") * date)
            assert (await raw.ask(PING)).status == case["next_status"], "the connection stays open"
        else:
            got, end = await raw.rest()
            assert end == "closed"
    assert re.sub(rb"date: [^\r]*", b"date: <DATE>", got) == wanted


async def test_body_of_20_megabytes_is_accepted() -> None:
    async with FakeSandbox(executor="scripted") as sandbox:
        answer = await one(sandbox.port, run_code("x" * 20_000_000))
    assert answer.json["status"] == "Success"


async def test_connection_closes_unannounced_after_a_500() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        answer = await raw.ask(post("/run_code", b'{"code":"x","language":"\\udcff"}'))
        await raw.send(PING)
        rest, _ = await raw.rest()
    assert answer.status == 500
    assert answer.header("connection") is None
    assert rest == b"", "the next request is not answered"


async def test_keep_alive_continues_after_404_405_and_422() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        assert (await raw.ask(post("/nope", b"{}"))).status == 404
        assert (await raw.ask(post("/v1/ping", b"{}"))).status == 405
        assert (await raw.ask(post("/run_code", b"{}"))).status == 422
        assert (await raw.ask(PING)).body == b'"pong"'


async def test_missing_dataset_is_named() -> None:
    body = b'{"dataset":"mbpp","config":{},"id":1,"completion":"x"}'
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        for path in (
            "/list_ids",
            "/get_prompts",
            "/get_prompt_by_id",
            "/submit",
            "/get_metrics_function",
        ):
            answer = await raw.ask(post(path, body))
            assert (answer.status, answer.body) == (
                400,
                b'{"detail":"no eval class found for dataset mbpp"}',
            )


async def test_a_request_sent_in_time_is_answered_although_its_connection_was_to_close() -> None:
    loop = asyncio.get_running_loop()

    async def handler(request: Request) -> Answer:
        if request.path == "/first":
            # Two turns later the idle time is over; one on newer Pythons, where aiohttp starts its
            # tasks eagerly. The loop looks for input before, and this is sent afterwards.
            later = (loop.call_soon,) if sys.version_info < (3, 12) else ()
            loop.call_soon(*later, raw.write, get("/second"))
        return Answer.json(request.path)

    async with WireServer(WireApp(handler), keep_alive=0.0) as server, Raw(server.port) as raw:
        assert (await raw.ask(get("/first"))).json == "/first"
        assert (await raw.answer()).json == "/second"
        assert await raw.rest() == (b"", "closed")


async def test_a_client_can_see_at_once_that_its_idle_connection_was_closed() -> None:
    """Before it reuses a connection, a client looks for input, and finds the end of it."""
    loop = asyncio.get_running_loop()
    seen: list[bool] = []

    async def handler(request: Request) -> Answer:
        # The third turn after the answer is the one after the idle time was over.
        loop.call_soon(loop.call_soon, loop.call_soon, lambda: seen.append(is_readable(raw.socket)))
        return Answer.json("hi")

    async with WireServer(WireApp(handler), keep_alive=0.0) as server, Raw(server.port) as raw:
        answer = await raw.ask(PING)
        assert await raw.rest() == (b"", "closed")
    assert (answer.json, seen) == ("hi", [True])


ODD = {
    "two hosts": b"host: localhost\r\nHost: y\r\n",
    "no host": b"accept: */*\r\n",
    "a folded header": b"host: localhost\r\nx-folded: one\r\n two\r\n\tthree\r\n",
    "a space in a header name": b"host: localhost\r\nx odd: one\r\n",
}


@pytest.mark.parametrize("name", ODD)
async def test_requests_that_only_uvicorn_accepts_are_served(name: str) -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        answer = await raw.ask(b"GET /v1/ping HTTP/1.1\r\n" + ODD[name] + b"\r\n")
        assert (answer.status, answer.body) == (200, b'"pong"')
        body = b'{"code":"","language":"python"}'
        length = f"content-length: {len(body)}\r\n\r\n".encode()
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        odd = b"POST /run_code HTTP/1.1\r\n" + ODD[name] + length + body
        # The second is in one segment with the first, the third arrives later.
        for request in (odd[:-3], odd[-3:] + odd, odd):
            await raw.send(request)
        answers = [await raw.answer() for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 200], "the body is not touched"


@pytest.mark.parametrize("header", [b"Connection:\r\n close", b"content-length:\r\n\t2"])
async def test_a_header_that_frames_the_request_cannot_be_folded(header: bytes) -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        answer = await raw.ask(
            b"POST /run_code HTTP/1.1\r\nhost: localhost\r\n" + header + b"\r\n\r\n{}"
        )
    assert answer.status == 400


async def test_a_get_is_answered_although_the_client_sends_nothing_more() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(PING)
        raw.half_close()
        got, end = await raw.rest()
    assert (got[:15], got[-6:], end) == (b"HTTP/1.1 200 OK", b'"pong"', "closed")


async def test_a_half_closed_connection_without_a_request_is_closed() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.ask(PING)
        raw.half_close()
        assert await raw.rest() == (b"", "closed")


@pytest.mark.parametrize("last", [b"GET", b"GET HTTP/1.0", b"POST"])
async def test_a_request_after_the_last_one_is_ignored(last: bytes) -> None:
    """Also if both are in one segment."""
    first = {
        b"GET": PING.replace(b"host:", b"connection: close\r\nhost:"),
        b"GET HTTP/1.0": PING.replace(b"HTTP/1.1", b"HTTP/1.0"),
        b"POST": run_code("first").replace(b"host: localhost", b"Connection:close"),
    }[last]
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(first + run_code())
        got, end = await raw.rest()
        assert sandbox.ledger.arrived == (last == b"POST"), "and not run"
    assert (got[:15], got.count(b"HTTP/1.1 "), end) == (b"HTTP/1.1 200 OK", 1, "closed")


async def test_an_upgrade_to_a_websocket_is_forbidden() -> None:
    head = (
        b"host: localhost\r\nconnection: Upgrade\r\nupgrade: "
        b"websocket\r\nsec-websocket-version: 13\r\n"
    )
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(
            b"GET /v1/ping HTTP/1.1\r\n"
            + head
            + b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        got, end = await raw.rest()
    assert (got.startswith(b"HTTP/1.1 403 Forbidden\r\n"), end) == (True, "closed")
