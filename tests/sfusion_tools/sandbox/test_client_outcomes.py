"""Whatever a server sends, a call ends with a typed outcome and nothing is raised."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Bounds, Program, RetryPolicy
from sfusion_tools.sandbox.fleet import Fleet
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import (
    Ending,
    Events,
    RawServer,
    answering,
    client,
    http,
    in_virtual_time,
    reset,
    run_answer,
)

ONCE = RetryPolicy(max_attempts=1)
PROGRAM = Program("print(3)")


async def test_the_request_has_the_format_of_sandbox_fusion():
    async with answering(http(run_answer())) as (url, server):
        program = Program("print('ü')", "cpp", 7.0, 3.0, 64, "in\n", {"a": "aGk="}, ["b"])
        await client(f"{url}/run_code", headers={"Authorization": "Bearer x"}).run(program)
    first, headers, body = server.requests[0]
    assert first == "POST /run_code HTTP/1.1"
    assert (headers["content-type"], headers["authorization"]) == ("application/json", "Bearer x")
    assert headers["user-agent"].startswith("sfusion/")
    assert json.loads(body) == {
        "compile_timeout": 3.0,
        "run_timeout": 7.0,
        "memory_limit_MB": 64,
        "code": "print('ü')",
        "stdin": "in\n",
        "language": "cpp",
        "files": {"a": "aGk="},
        "fetch_files": ["b"],
    }


async def test_a_configured_content_type_replaces_the_default():
    async with answering(http(run_answer())) as (url, server):
        await client(url, headers={"content-type": "application/json; charset=utf-8"}).run(PROGRAM)
    assert server.requests[0][1]["content-type"] == "application/json; charset=utf-8"


BROKEN = {
    "429": (http("slow down", "429 Too Many Requests"), Outcome.THROTTLED, 0),
    "500": (http('{"detail":"x"}', "500 Internal Server Error"), Outcome.SANDBOX_ERROR, 1),
    "502": (http("bad gateway", "502 Bad Gateway"), Outcome.SANDBOX_ERROR, 1),
    "503": (http("busy", "503 Service Unavailable"), Outcome.SANDBOX_ERROR, 0),
    "504": (http("upstream request timeout", "504 Gateway Timeout"), Outcome.SANDBOX_ERROR, 1),
    "404": (http('{"detail":"Not Found"}', "404 Not Found"), Outcome.BAD_RESPONSE, 0),
    "422": (http('{"detail":[]}', "422 Unprocessable Entity"), Outcome.BAD_RESPONSE, 0),
    "redirect": (
        http("", "307 Temporary Redirect", "location: /elsewhere"),
        Outcome.BAD_RESPONSE,
        0,
    ),
    "html": (http("<html>hi</html>", "200 OK", "content-type: text/html"), Outcome.BAD_RESPONSE, 1),
    "not JSON": (http("{", "200 OK"), Outcome.BAD_RESPONSE, 1),
    "not UTF-8": (http(b'{"status":"\xff"}', "200 OK"), Outcome.BAD_RESPONSE, 1),
    "no body": (http("", "200 OK"), Outcome.BAD_RESPONSE, 1),
    "null": (http("null"), Outcome.BAD_RESPONSE, 1),
    "half a character": (http(run_answer("\ud800")), Outcome.OK, 1),
    "null streams": (http(run_answer(None, None)), Outcome.BAD_RESPONSE, 1),
    "wrong content type": (http(run_answer(), "200 OK", "content-type: image/png"), Outcome.OK, 1),
    "no run_result": (http({**run_answer(), "run_result": None}), Outcome.BAD_RESPONSE, 1),
    "SandboxError": (http({"status": "SandboxError", "message": "x"}), Outcome.SANDBOX_ERROR, 1),
    "reset": (Ending.RESET, Outcome.UNREACHABLE, 1),
    "closed": (Ending.CLOSE, Outcome.UNREACHABLE, 1),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", Outcome.BAD_RESPONSE, 1),
    "bad status line": (b"HTTP/1.1 abc OK\r\n\r\n", Outcome.BAD_RESPONSE, 1),
    "bad header": (b"HTTP/1.1 200 OK\r\n\0\xff\r\n\r\n", Outcome.BAD_RESPONSE, 1),
    "endless header": (
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000 + b"\r\n\r\n",
        Outcome.BAD_RESPONSE,
        1,
    ),
    "bad length": (b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n", Outcome.BAD_RESPONSE, 1),
    "bad chunk": (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n",
        Outcome.BAD_RESPONSE,
        1,
    ),
    "bad gzip": (http(b"no gzip", "200 OK", "content-encoding: gzip"), Outcome.BAD_RESPONSE, 1),
    "unknown encoding": (
        http(b"???", "200 OK", "content-encoding: rot13"),
        Outcome.BAD_RESPONSE,
        1,
    ),
    "switching protocols": (
        http("", "101 Switching Protocols", "upgrade: x"),
        Outcome.BAD_RESPONSE,
        0,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_every_answer_ends_the_call_with_its_outcome(name):
    answer, outcome, executions = BROKEN[name]
    async with answering(answer) as (url, server):
        result = await client(url, retry=ONCE).run(PROGRAM)
    assert (result.outcome, result.possible_executions, len(server.requests)) == (
        outcome,
        executions,
        1,
    )
    assert bool(result.message) != result.outcome.is_from_program
    json.dumps(result.metrics(), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        ({"what": {"truncate": 0.5}}, Outcome.BAD_RESPONSE),
        ({"what": {"truncate": {"at": 20, "then": "reset"}}}, Outcome.BAD_RESPONSE),
        ({"what": {"malformed": "chunk"}}, Outcome.BAD_RESPONSE),
        ({"what": {"malformed": "json"}}, Outcome.BAD_RESPONSE),
        ({"what": {"malformed": "header"}}, Outcome.BAD_RESPONSE),
        ({"what": {"malformed": "status_line"}}, Outcome.BAD_RESPONSE),
        ({"what": {"content_type": "text/html"}}, Outcome.OK),
        ({"what": {"sandbox_error": True}}, Outcome.SANDBOX_ERROR),
        ({"what": {"output": "null"}}, Outcome.BAD_RESPONSE),
        ({"what": {"output": "not_utf8"}}, Outcome.BAD_RESPONSE),
        ({"what": {"output": "decode_error"}}, Outcome.OK),
        ({"what": {"timeout": {"stdout": "so far"}}, "phase": "before"}, Outcome.PROGRAM_TIMEOUT),
        ({"what": "reset", "phase": "connect"}, Outcome.UNREACHABLE),
        ({"what": "reset", "phase": "after"}, Outcome.UNREACHABLE),
        ({"what": "close", "phase": "during"}, Outcome.UNREACHABLE),
        ({"what": {"crash": True}}, Outcome.UNREACHABLE),
    ],
)
async def test_every_fault_of_the_fake_gets_its_outcome(fault, outcome):
    async with FakeSandbox(faults=[fault]) as sandbox:
        result = await client(sandbox.url, retry=ONCE).run(
            Program('print(3)  # sfusion:call=c prints="3\\n"')
        )
    assert result.outcome is outcome, result.message


async def test_an_answer_counts_for_the_health_of_its_sandbox():
    fleet = Fleet()
    async with answering(http(run_answer())) as (url, _):
        await client(url, fleet=fleet).run(PROGRAM)
    assert fleet.endpoint(url).speed is not None


async def test_a_refused_connection_is_unreachable_and_nothing_ran():
    url = f"http://127.0.0.1:{closed_port()}"
    result = await client(url).run(PROGRAM)
    assert (result.outcome, result.possible_executions, len(result.attempts)) == (
        Outcome.UNREACHABLE,
        0,
        6,
    )
    assert result.message.startswith(f"no connection to {url}: ")
    assert result.message.endswith("; gave up after 6 attempts")


async def test_https_to_a_plain_port_is_unreachable():
    async with FakeSandbox() as sandbox:
        result = await client(sandbox.url.replace("http:", "https:"), retry=ONCE).run(PROGRAM)
    assert (result.outcome, result.possible_executions) == (Outcome.UNREACHABLE, 0)


async def test_a_reset_inside_the_body_is_not_a_success():
    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(http(run_answer(), length=10_000))
        await writer.drain()
        reset(writer)

    async with RawServer(serve).running() as url:
        result = await client(url, retry=ONCE).run(PROGRAM)
    assert result.outcome in (Outcome.BAD_RESPONSE, Outcome.UNREACHABLE)
    assert result.possible_executions == 1


MEGABYTE = 2**20


@pytest.mark.parametrize(
    "framing", ["content-length: 104857600", "transfer-encoding: chunked", "connection: close"]
)
async def test_an_answer_of_100_mb_is_refused_without_being_read(framing):
    """Memory is bounded: the client reads no more than its limit, and the server cannot send the
    rest."""
    sent = 0

    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        nonlocal sent
        writer.transport.set_write_buffer_limits(MEGABYTE)
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{framing}\r\n\r\n".encode()
        )
        block = b" " * MEGABYTE
        for _ in range(100):
            writer.write(b"%x\r\n%b\r\n" % (MEGABYTE, block) if "chunked" in framing else block)
            await writer.drain()
            sent += 1
        if "chunked" in framing:
            writer.write(b"0\r\n\r\n")
        raise EOFError

    server = RawServer(serve)
    async with server.running() as url:
        sandbox = client(url, retry=ONCE, bounds=Bounds(response_bytes=4 * MEGABYTE))
        tracemalloc.start()
        try:
            result = await sandbox.run(PROGRAM)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        await server.gone.wait()
    assert (result.outcome, result.possible_executions) == (Outcome.BAD_RESPONSE, 1)
    assert result.message == "the answer is over 4,194,304 bytes"
    assert sent < 30
    assert peak < 24 * MEGABYTE


def test_an_answer_with_a_too_large_content_length_is_not_read():
    async def go() -> None:
        async def serve(writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(http("{", length=100 * MEGABYTE))
            await server.client_left(writer)

        server = RawServer(serve)
        async with server.running() as url:
            result = await client(url, retry=ONCE).run(PROGRAM)
            await server.gone.wait()
        assert (result.outcome, result.message) == (
            Outcome.BAD_RESPONSE,
            "the answer is over 16,777,216 bytes",
        )

    in_virtual_time(go)


async def test_a_compression_bomb_is_refused():
    bomb = gzip.compress(b" " * (40 * MEGABYTE))
    async with answering(http(bomb, "200 OK", "content-encoding: gzip")) as (url, server):
        sandbox = client(url, retry=ONCE, bounds=Bounds(response_bytes=4 * MEGABYTE))
        tracemalloc.start()
        try:
            result = await sandbox.run(PROGRAM)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (result.outcome, result.message) == (
        Outcome.BAD_RESPONSE,
        "the answer is over 4,194,304 bytes",
    )
    assert peak < 24 * MEGABYTE
    assert server.requests[0][1]["accept-encoding"] == "identity"


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_answer_up_to_the_limit_is_read_completely(chunked):
    answer = http(run_answer("x" * 5000))
    body = answer.partition(b"\r\n\r\n")[2]
    size = len(body)
    if chunked:
        answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (
            size,
            body,
        )
    async with answering(answer) as (url, _):
        whole = await client(url, bounds=Bounds(response_bytes=size)).run(PROGRAM)
        over = await client(url, bounds=Bounds(response_bytes=size - 1)).run(PROGRAM)
    assert (whole.outcome, len(whole.stdout)) == (Outcome.OK, 5000)
    assert over.outcome is Outcome.BAD_RESPONSE
    assert len(over.attempts) == 1, "it would be as long again"


@pytest.mark.parametrize(
    "busy",
    [
        http("x" * 100_000, "429 Too Many Requests", "retry-after: 0.001"),
        http("cut", "429 Too Many Requests", "retry-after: 0.001", length=500_000),
    ],
    ids=["longer than the limit", "broken off"],
)
async def test_the_status_of_a_refusal_decides_the_outcome_whatever_its_body(busy):
    events = Events()

    async def serve(writer: asyncio.StreamWriter, number: int) -> None:
        writer.write(busy if number == 1 else http(run_answer()))
        await writer.drain()
        if number == 1:
            raise EOFError

    async with RawServer(serve).running() as url:
        sandbox = client(url, on_event=events, bounds=Bounds(response_bytes=50_000))
        result = await sandbox.run(PROGRAM)
    assert [attempt.outcome for attempt in result.attempts] == [Outcome.THROTTLED, Outcome.OK]
    assert result.attempts[0].detail.startswith(
        ("the sandbox answered 429: xxx", "the sandbox answered 429: cut")
    )
    assert events.of("backing_off")[0]["asked"] == 0.001


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 abc\r\n\r\n", Ending.CLOSE, http("no", "404 Not Found")]
)
async def test_no_password_or_token_reaches_a_message_or_the_log(answer, caplog):
    """Messages end up in logs, journals and the model's context."""
    async with answering(answer) as (url, server):
        secret = url.replace("//", "//user:hunter2@") + "/run_code?token=hunter2"
        events = Events()
        result = await client(secret, retry=ONCE, on_event=events).run(PROGRAM)
    assert "authorization" in server.requests[0][1]
    assert "token=hunter2" in server.requests[0][0]
    assert "hunter2" not in f"{result}{result.metrics()}{events.all}{caplog.text}"


async def test_a_placeholder_url_is_warned_about_at_once(caplog):
    client("https://xxx.apigateway-cn.example.net/run_code")
    assert "looks like a placeholder that was never filled in; every call will fail" in caplog.text
