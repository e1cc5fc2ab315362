"""Answers of a hostile server: the commands that read them note what is wrong and go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sfusion.harness.real.drift.comparing import compare
from sfusion.harness.real.drift.judging import REVEALS_PROFILE, lacking, profile_of
from sfusion.harness.real.probes.cassette import read_response, response_record
from sfusion.harness.real.probes.model import Probe, ProbeRequest
from sfusion.harness.real.probes.raw_http import ProbeAnswer, Server, exchange
from sfusion.harness.real.probes.scrubbing import Scrubber
from sfusion.harness.rollouts.viewer.parts import split_turns

DEEP = [b"[" * 100_000 + b"]" * 100_000, b'{"a": ' * 900 + b"1" + b"}" * 900]
PROBE = Probe(
    id="a/b", about="A probe that needs a command.", request=ProbeRequest(path="/"), needs=("node",)
)
READERS: dict[str, Callable[[ProbeAnswer], Any]] = {
    "scrubbed": Scrubber.of(url="http://x").answer,
    "recorded and read again": lambda answer: read_response(response_record(answer)),
    "compared": lambda answer: compare(PROBE, answer, ProbeAnswer(200, (), b"{}")),
    "profile": lambda answer: profile_of({REVEALS_PROFILE: answer}),
    "lacking": lambda answer: lacking(PROBE, answer),
    "a call in the viewer": lambda answer: split_turns(answer.body.decode()),
}


@pytest.mark.parametrize("body", DEEP, ids=["lists", "mappings"])
@pytest.mark.parametrize("reader", READERS)
def test_a_deep_answer_is_read_as_a_text(reader: str, body: bytes) -> None:
    READERS[reader](ProbeAnswer(200, (), body))


async def test_an_answer_with_more_headers_than_anyone_sends_is_not_http() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000 + b"content-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        found = await exchange(Server.at(f"http://127.0.0.1:{port}"), b"GET / HTTP/1.1\r\n\r\n")
    assert found.failure == "the answer is not HTTP: it has 5001 headers"
