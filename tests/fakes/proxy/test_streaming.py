"""Answers are streamed, no faster than the client reads and no longer than it stays connected."""

from __future__ import annotations

import asyncio
import io
import random

import aiohttp
import pytest

from sfusion.fakes.proxy import FaultProxy
from tests.fakes.proxy.scripted_upstream import OK, UpstreamConnection, scripted_upstream
from tests.fakes.wire.raw import PATIENCE, Raw, Watch, get, post, whole

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)
LONG = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "pieces"),
    [
        (CHUNKED, [b"3\r\none\r\n", b"3\r\ntwo\r\n", b"0\r\n\r\n"]),
        (LONG, [b"one", b"two"]),
    ],
    ids=["chunked", "known length"],
)
async def test_client_receives_a_piece_before_the_upstream_sends_the_next(
    head: bytes, pieces: list[bytes]
) -> None:
    go_on = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(head)
        for piece in pieces:
            await go_on.wait()
            go_on.clear()
            await peer.send(piece)

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(get("/a"))
        async with asyncio.timeout(PATIENCE):
            assert await raw.reader.readexactly(len(head)) == head
            for piece in pieces:
                go_on.set()
                assert await raw.reader.readexactly(len(piece)) == piece


async def test_client_that_does_not_read_slows_the_upstream_down() -> None:
    piece = b"x" * 65536
    sent = 0
    stuck = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (1024 * len(piece)))
        while sent < 1024:
            peer.writer.write(piece)
            sent += 1
            try:
                async with asyncio.timeout(0.5):
                    await peer.writer.drain()
            except TimeoutError:
                stuck.set()
                await peer.writer.drain()

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(get("/a"))
        await raw.reader.readuntil(b"\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await stuck.wait()
            assert sent < 1024, "64 MiB are not buffered anywhere"
            for _ in range(1024):
                assert await raw.reader.readexactly(len(piece)) == piece


async def test_stream_ends_when_the_client_disconnects_in_the_middle() -> None:
    left = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"3\r\none\r\n")
        await peer.gone()
        left.set()

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        async with Raw(proxy.port) as raw:
            await raw.send(post("/stream", b"{}"))
            await raw.reader.readuntil(b"one\r\n")
        async with asyncio.timeout(PATIENCE):
            await left.wait()
        await events.until(lambda: proxy.ledger.in_flight == 0)
    assert events.kinds() == ["arrived", "forwarded", "replied", "answered"]
    assert events[-1]["client_gone"] is True
    assert proxy.ledger.upstream_failed == 0, "the server did not fail"


async def test_upstream_may_finish_when_the_client_disconnects_before_the_answer() -> None:
    asked, go_on, finished = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        asked.set()
        await go_on.wait()
        await peer.send(OK)
        finished.set()
        await peer.gone()

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        async with Raw(proxy.port) as raw:
            await raw.send(post("/run_code", b"{}"))
            await asked.wait()
        go_on.set()
        await events.until(lambda: proxy.ledger.replied == 1)
        assert finished.is_set()
        await events.until(lambda: proxy.ledger.in_flight == 0)
    assert events.kinds() == ["arrived", "forwarded", "replied", "answered"]
    assert events[-1]["client_gone"] is True


@pytest.mark.parametrize("how", ["close", "reset", "garbage"])
async def test_answer_that_breaks_off_upstream_breaks_off_for_the_client(how: str) -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(CHUNKED + b"3\r\none\r\n")
        await seen.wait()
        if how == "garbage":
            await peer.send(b"zz\r\nnot a chunk\r\n")
            await peer.gone()
        elif how == "reset":
            peer.reset()

    seen = asyncio.Event()
    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(post("/run_code", b"# sfusion:call=c1"))
        assert await raw.reader.readuntil(b"one\r\n") == CHUNKED + b"3\r\none\r\n"
        seen.set()
        assert await raw.rest() == (b"", "closed"), (
            "without a last chunk the client can see that it is cut"
        )
        await events.until(lambda: proxy.ledger.in_flight == 0)
    assert events.kinds() == ["arrived", "forwarded", "replied", "upstream_failed", "answered"]
    assert events[3]["call"] == "c1"
    assert events[3]["why"] == f"{server.url} broke off in the middle of its answer"
    assert proxy.ledger.upstream_failed == 1


async def test_body_shorter_than_announced_is_relayed_as_it_is() -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(LONG + b"one")

    async with scripted_upstream(serve) as server, FaultProxy(server.url) as proxy:
        assert await whole(proxy.port, get("/a")) == (LONG + b"one", "closed")


async def test_client_that_disconnects_while_sending_is_not_an_upstream_failure() -> None:
    begun = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.head()
        await peer.reader.readexactly(1 << 20)
        begun.set()
        await peer.gone()

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        async with Raw(proxy.port) as raw:
            await raw.send(
                b"POST /run_code HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000\r\n\r\n"
                + b"x" * 3_000_000
            )
            await begun.wait()
        await events.until(lambda: proxy.ledger.in_flight == 0)
    assert proxy.ledger.upstream_failed == 0
    assert [event["why"] for event in events if event["event"] == "broken_off"] == [
        "the client left before all of its request had come"
    ]


async def test_upstream_may_answer_before_the_request_is_complete() -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.head()
        await peer.send(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await peer.gone()

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(
            b"POST /run_code HTTP/1.1\r\nhost: localhost\r\ncontent-length: 90000000\r\n\r\n"
            + b"x" * 2_000_000
        )
        assert (await raw.answer()).status == 413


async def test_bodies_in_any_pieces_arrive_complete_both_ways() -> None:
    chance = random.Random(7)
    bodies = [
        chance.randbytes(chance.choice([0, 1, 100, 5000, 70_000, 300_000, 1_500_000]))
        for _ in range(24)
    ]

    async def serve(peer: UpstreamConnection) -> None:
        """Echo what was sent, in other chunks."""
        while True:
            _, body = await peer.request()
            chunked = chance.random() < 0.5
            framing = (
                b"transfer-encoding: chunked" if chunked else b"content-length: %d" % len(body)
            )
            await peer.send(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")
            while body:
                size = chance.randint(1, len(body))
                piece, body = body[:size], body[size:]
                await peer.send(b"%x\r\n%b\r\n" % (size, piece) if chunked else piece)
            if chunked:
                await peer.send(b"0\r\n\r\n")

    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url) as proxy,
        aiohttp.ClientSession() as session,
    ):
        for body in bodies:
            async with session.post(f"{proxy.url}/echo", data=io.BytesIO(body)) as answer:
                assert await answer.read() == body
    assert proxy.ledger.statuses == {200: len(bodies)}
