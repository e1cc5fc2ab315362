"""Requests that try to freeze or fill the server get an error, and the server goes on serving."""

from __future__ import annotations

import asyncio
import json

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from tests.fakes.sandbox.memory import MemoryConnection
from tests.fakes.wire.raw import PATIENCE, PING, Raw, get, one, post, run_code

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
    for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
OLD = {"name": "old", "path": "/old", "what": {"status": 503}}


def huge(size: int) -> str:
    return json.dumps([{"what": {"output": {"what": "huge", "size": size}}}])


def coded(pattern: str) -> str:
    return json.dumps([{"code": pattern, "what": {"status": 503}}])


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (BOMB, 422, "aliases are counted as what they stand for"),
        ("- &a [*a]", 422, "body:1: *a stands inside its own anchor"),
        ("[" * 50_000, 422, "nested more than"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, 413, "larger than 100,000 bytes"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, 422, "nested more than"),
        ("- {what: {status: 503}}\n" * 5000, 413, "larger than 100,000 bytes"),
        ("- {what: {status: 503}}\n" * 4000, 422, "more than 10,000 keys and values"),
        (huge(10**12), 422, "less than or equal to 20000000"),
        (json.dumps([{"what": {"delay": "1" * 90_000 + "!"}}]), 422, "is not a duration"),
        (json.dumps([{"what": {"delay": "1" + " " * 90_000 + "!"}}]), 422, "is not a duration"),
        (
            '[{"what": {"status": ' + "1" * 10_000 + "}}]",
            422,
            "a number of more than 100 characters",
        ),
        (coded("(x|xx)+y"), 422, "backtracks"),
        (coded("(ab|abab)+c"), 422, "backtracks"),
        (coded("(" * 20_000), 422, "more than 10,000 characters"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,
)
async def test_hostile_faults_are_refused_and_change_nothing(
    body: str, status: int, sentence: str
) -> None:
    async with asyncio.timeout(PATIENCE), FakeSandbox(faults=[OLD]) as sandbox:
        answer = await one(
            sandbox.port, post("/__sfusion/faults", body.encode()).replace(b"POST", b"PUT", 1)
        )
        assert (answer.status, sentence in answer.json["detail"]) == (status, True), answer.body[
            :500
        ]
        assert len(answer.body) < 2000, "what was found is not repeated in full"
        assert (await one(sandbox.port, PING)).body == b'"pong"'
        assert [rule["name"] for rule in sandbox.faults()["faults"]] == ["old"]


def generate(**options: object) -> bytes:
    return post("/generate", json.dumps({"text": "hi", **options}).encode())


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (generate(sampling_params={"n": 10**6}), "at most 16,384 samples"),
        (generate(return_logprob=True, top_logprobs_num=10**7), "at most 1,024 log probabilities"),
        (generate(sampling_params={"stop_regex": "(x|xx)+y"}), "backtracks"),
        (generate(sampling_params={"stop_regex": "("}), "is not a regular expression"),
    ],
    ids=["samples", "logprobs", "slow regex", "bad regex"],
)
async def test_hostile_requests_to_the_engine_are_refused(request_: bytes, sentence: str) -> None:
    async with (
        asyncio.timeout(PATIENCE),
        FakeSGLangServer(ScriptedPolicy([], otherwise="x" * 60)) as server,
    ):
        answer = await one(server.port, request_)
        assert (answer.status, sentence in answer.json["error"]["message"]) == (400, True), (
            answer.body
        )
        assert (await one(server.port, get("/health"))).status == 200


@pytest.mark.parametrize("framing", ["content-length: 1000000000", "transfer-encoding: chunked"])
async def test_a_long_admin_body_is_refused_before_all_of_it_has_come(framing: str) -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(
            (
                f"PUT /__sfusion/faults HTTP/1.1\r\nhost: localhost\r\n{framing}\r\n\r\n40000\r\n"
            ).encode()
        )
        await raw.send(b"-" * 200_000)
        assert (await raw.answer()).status == 413


async def test_a_program_cannot_print_what_would_fill_the_memory() -> None:
    async with FakeSandbox() as sandbox:
        answer = await one(sandbox.port, run_code('# sfusion:call=a prints="{fill:1000000000}"'))
        assert "needs a whole number of characters up to 20,000,000" in answer.json["message"]


async def test_a_long_word_beside_the_mark_is_read_at_once() -> None:
    async with asyncio.timeout(PATIENCE), FakeSandbox(executor="scripted") as sandbox:
        answer = await one(sandbox.port, run_code("# sfusion:call=a exit=3 " + "a" * 300_000))
        assert answer.json["run_result"]["return_code"] == 3


@pytest.mark.parametrize(
    "line", [b"x: ", b"GET /", b"x: 1\r\n"], ids=["header", "target", "headers"]
)
async def test_a_head_without_an_end_is_refused(line: bytes) -> None:
    start = b"" if line.startswith(b"GET") else b"GET /v1/ping HTTP/1.1\r\nhost: localhost\r\n"
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        assert (await raw.ask(PING)).status == 200
        await raw.send(start + line)
        for _ in range(40):
            await raw.send(line * (10_000 // len(line)) if line.endswith(b"\n") else b"a" * 10_000)
        got, _ = await raw.rest()
        assert got.startswith(b"HTTP/1.1 400 ")
        assert got.endswith(b"Invalid HTTP request received.")
        assert (await one(sandbox.port, PING)).status == 200


async def test_a_long_body_is_not_taken_for_a_long_head() -> None:
    async with FakeSandbox(executor="scripted") as sandbox, Raw(sandbox.port) as raw:
        request = run_code("x" * 500_000)
        for start in range(0, len(request), 50_000):
            await raw.send(request[start : start + 50_000])
        assert (await raw.answer()).status == 200


async def test_all_of_many_requests_sent_at_once_are_answered() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(PING * 200)
        for _ in range(200):
            assert (await raw.answer()).status == 200


async def test_a_length_of_many_digits_is_not_http() -> None:
    async with FakeSandbox() as sandbox, Raw(sandbox.port) as raw:
        await raw.send(
            b"POST /run_code HTTP/1.1\r\nhost: localhost\r\ncontent-length: "
            + b"9" * 5000
            + b"\r\n\r\n{}"
        )
        assert (await raw.answer()).status == 400


async def test_a_request_that_is_read_while_its_connection_is_lost_raises_nothing():
    sandbox = FakeSandbox()
    sandbox.server.attach()
    protocol = MemoryConnection(sandbox.server).protocol
    serving = protocol._task_handler
    assert serving is not None
    await asyncio.sleep(0)
    protocol.data_received(PING)
    protocol.connection_lost(None)
    await serving
    await sandbox.stop(grace=0.0)
