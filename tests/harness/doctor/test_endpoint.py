"""What stands behind the address: nobody, another protocol, another service, or a sandbox that does not work."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import replace

import pytest
import trustme

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire import Answer, Request
from sfusion.harness.doctor import Plan
from tests.harness.doctor.servers import (
    GREETS,
    HASTY,
    QUICK,
    always,
    answering,
    breaking,
    examined,
    forwarding,
    ids,
    scripted,
    seen,
    serving_tls,
    severity,
    until,
)

HELLO = until("run_code")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


async def test_a_closed_port_is_unreachable() -> None:
    port = free_port()
    result = await examined(f"http://127.0.0.1:{port}/run_code")
    assert ids(result) == {"unreachable"}
    assert breaking(result) == ["unreachable"]
    assert f"no connection to 127.0.0.1 port {port}: Connection refused" in seen(result, "unreachable")
    assert result.reached is False


async def test_a_name_that_nobody_knows_is_unreachable() -> None:
    result = await examined("http://sandbox.invalid:8080/run_code")
    assert breaking(result) == ["unreachable"]
    assert result.reached is False
    assert "name" in result.findings[0].change


async def test_alive_ping_and_hanging_run_code_is_told_as_that() -> None:
    async with scripted() as sandbox:
        sandbox.wedge(ping="alive")
        result = await examined(sandbox.url, HASTY)
        assert ids(result) == {"run-code-hangs"}
        assert breaking(result) == ["run-code-hangs"]
        assert "/v1/ping answered in" in seen(result, "run-code-hangs")
        assert result.reached is True
        sandbox.unwedge()
        assert ids(await examined(sandbox.url, checks=HELLO)) == set()


async def test_a_server_that_takes_connections_and_says_nothing_is_told_as_that() -> None:
    async with scripted() as sandbox:
        sandbox.wedge(ping="dead")
        result = await examined(sandbox.url, HASTY)
        assert ids(result) == {"no-answer"}
        assert breaking(result) == ["no-answer"]


async def test_a_dead_ping_beside_working_programs_does_not_break_training() -> None:
    async with scripted(faults=[{"path": "/v1/ping", "what": {"hang": True}}]) as sandbox:
        result = await examined(sandbox.url, Plan(patience=1.0, quick=True), checks=HELLO)
        assert ids(result) == {"ping-dead"}
        assert severity(result, "ping-dead") == "hurts"


async def test_a_gateway_that_does_not_know_the_ping_is_told_by_its_status() -> None:
    async with scripted(faults=[{"path": "/v1/ping", "what": {"status": 404}}]) as sandbox:
        result = await examined(sandbox.url, checks=HELLO)
        assert seen(result, "ping-dead") == "programs run, but GET /v1/ping is answered 404"


async def test_a_slow_ping_hurts() -> None:
    async with scripted(faults=[{"path": "/v1/ping", "what": {"delay": "0.2s"}}]) as sandbox:
        slow = await examined(sandbox.url, replace(QUICK, slow_ping=0.1), checks=HELLO)
        assert ids(slow) == {"slow-ping"}
        assert severity(slow, "slow-ping") == "hurts"
        assert ids(await examined(sandbox.url, replace(QUICK, slow_ping=60.0), checks=HELLO)) == set()


PAGE = "<!doctype html><title>Sign in</title><h1>Please log in</h1>"


@pytest.mark.parametrize(
    ("answer", "expected", "telling"),
    [
        (Answer.text(PAGE, content_type="text/html"), "web-page", "(200): <!doctype html>"),
        (Answer.text("<html>nginx</html>", 502, "text/html"), "web-page", "(502)"),
        (Answer.json({"detail": "Not Found"}, 404), "not-found", '404: {"detail":"Not Found"}'),
        (Answer.json({"detail": "Method Not Allowed"}, 405), "method-not-allowed", "405"),
        (Answer.json({"detail": "who are you"}, 401), "authentication", "401"),
        (Answer.json({"detail": "not you"}, 403), "authentication", "403"),
        (Answer.json({}, 429, (("retry-after", "7"),)), "throttled-at-rest", "429 with Retry-After 7"),
        (Answer.json({}, 503), "throttled-at-rest", "503"),
        (Answer.json({"detail": "boom"}, 500), "server-error", "500"),
        (Answer.text("upstream request timeout", 504), "server-error", "504: upstream request timeout"),
        (Answer.json({"result": 42}), "other-service", "not as Sandbox Fusion does"),
        (Answer.text("hello"), "other-service", "hello"),
        (
            Answer(301, headers=(("location", "https://box.test/run_code?token=s3cr3t"),)),
            "redirect",
            "https://box.test",
        ),
        (Answer(307, headers=(("location", "https://box.test/run_code"),)), "redirect", "307"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_something_else_that_answers_is_named(answer: Answer, expected: str, telling: str) -> None:
    async with always(answer) as url:
        result = await examined(f"{url}/run_code")
        assert ids(result) == {expected}
        assert breaking(result) == [expected]
        assert telling in seen(result, expected)
        assert "s3cr3t" not in str(result.findings)
        assert result.reached is True


async def test_a_redirect_that_loses_the_program_says_so() -> None:
    async with always(Answer(302, headers=(("location", "https://box.test/run_code"),))) as url:
        (lost,) = (await examined(url)).findings
    assert "as a GET without the program" in lost.training
    assert "https://box.test/run_code" in lost.change


async def test_a_token_that_is_wanted_and_given_is_no_finding() -> None:
    async with scripted() as sandbox, forwarding(sandbox.url, token="opens-it") as url:
        assert breaking(await examined(url, checks=HELLO)) == ["authentication"]
        result = await examined(url, checks=HELLO, headers={"Authorization": "Bearer opens-it"})
        assert ids(result) == set()


async def test_a_connection_that_breaks_under_every_program_is_told() -> None:
    async with scripted(faults=[{"what": {"reset": True}}]) as sandbox:
        result = await examined(sandbox.url)
        assert ids(result) == {"connection-lost"}
        assert breaking(result) == ["connection-lost"]


async def test_a_python_that_does_not_start_is_told_with_its_own_words() -> None:
    broken = {"pattern": "6", "exit": 127, "errors": "/bin/bash: line 1: python: command not found\n"}
    async with FakeSandbox(executor="scripted", scripts=[broken]) as sandbox:
        result = await examined(sandbox.url)
        assert breaking(result) == ["program-fails"]
        assert "the sandbox has no 'python'" in seen(result, "program-fails")


async def test_a_success_that_printed_nothing_is_no_success() -> None:
    async with FakeSandbox(executor="scripted") as sandbox:
        result = await examined(sandbox.url)
        assert breaking(result) == ["wrong-output"]
        assert "is a Success that printed ''" in seen(result, "wrong-output")


async def test_https_to_a_port_that_speaks_plain_http() -> None:
    async with scripted() as sandbox:
        result = await examined(f"https://127.0.0.1:{sandbox.port}/run_code", HASTY)
        assert ids(result) == {"https-to-plain-port"}
        assert breaking(result) == ["https-to-plain-port"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """Somebody who signs certificates, and whom nobody trusts."""
    return trustme.CA()


def server_side(authority: trustme.CA, name: str) -> ssl.SSLContext:
    """What a server of this name needs."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_http_to_a_port_that_wants_tls(authority: trustme.CA) -> None:
    async with serving_tls(server_side(authority, "127.0.0.1")) as port:
        result = await examined(f"http://127.0.0.1:{port}/run_code", HASTY)
        assert ids(result) == {"http-to-tls-port"}
        assert breaking(result) == ["http-to-tls-port"]


async def test_http_to_a_gateway_that_says_so_itself() -> None:
    said = Answer.text("400 The plain HTTP request was sent to HTTPS port", 400)

    async def handler(request: Request) -> Answer:
        return said

    async with answering(handler) as url:
        assert breaking(await examined(url)) == ["http-to-tls-port"]


@pytest.mark.parametrize("name", ["127.0.0.1", "elsewhere.test"])
async def test_a_certificate_that_is_not_trusted(authority: trustme.CA, name: str) -> None:
    async with serving_tls(server_side(authority, name)) as port:
        result = await examined(f"https://127.0.0.1:{port}/run_code", HASTY)
        assert ids(result) == {"certificate"}
        assert breaking(result) == ["certificate"]
        assert "certificate" in seen(result, "certificate")


async def test_a_tls_handshake_that_fails_for_another_reason() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # a TLS alert: handshake failure
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        result = await examined(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/run_code", HASTY)
    finally:
        server.close()
    assert breaking(result) == ["tls-fails"]


async def test_a_working_sandbox_has_none_of_these() -> None:
    async with scripted() as sandbox:
        result = await examined(f"{sandbox.url}/run_code", checks=HELLO)
        assert result.findings == []
        assert result.not_examined == []
        assert GREETS.prints == "sfusion 42\n"
