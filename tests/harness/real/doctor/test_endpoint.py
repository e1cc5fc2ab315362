"""Findings about what is behind the address: nothing, another protocol, another service, a broken
sandbox."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trustme

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire import Answer, Request
from sfusion.harness.real.doctor.settings import Plan
from tests.harness.real.doctor.servers import (
    GREETS,
    HASTY,
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
from tests.ports import closed_port
from tests.sfusion_tools.sandbox.helpers import virtually

HELLO = until("run_code")


async def test_a_closed_port_is_unreachable() -> None:
    port = closed_port()
    result = await examined(f"http://127.0.0.1:{port}/run_code")
    assert ids(result) == {"unreachable"}
    assert breaking(result) == ["unreachable"]
    assert f"no connection to 127.0.0.1 port {port}: Connection refused" in seen(
        result, "unreachable"
    )
    assert result.reached is False


async def test_an_unknown_host_name_is_unreachable() -> None:
    result = await examined("http://sandbox.invalid:8080/run_code")
    assert breaking(result) == ["unreachable"]
    assert result.reached is False
    assert "name" in result.findings[0].change


@virtually
async def test_run_code_that_hangs_behind_a_live_ping_breaks_training() -> None:
    async with scripted() as sandbox:
        sandbox.wedge(ping="alive")
        result = await examined(sandbox.url, HASTY)
        assert ids(result) == {"run-code-hangs"}
        assert breaking(result) == ["run-code-hangs"]
        assert "/v1/ping answered in" in seen(result, "run-code-hangs")
        assert result.reached is True
        sandbox.unwedge()
        assert ids(await examined(sandbox.url, checks=HELLO)) == set()


@virtually
async def test_a_server_that_accepts_connections_but_never_answers_breaks_training() -> None:
    async with scripted() as sandbox:
        sandbox.wedge(ping="dead")
        result = await examined(sandbox.url, HASTY)
        assert ids(result) == {"no-answer"}
        assert breaking(result) == ["no-answer"]


@virtually
async def test_a_dead_ping_hurts_if_programs_run() -> None:
    async with scripted(faults=[{"path": "/v1/ping", "what": {"hang": True}}]) as sandbox:
        result = await examined(sandbox.url, Plan(patience=1.0, quick=True), checks=HELLO)
        assert ids(result) == {"ping-dead"}
        assert severity(result, "ping-dead") == "hurts"
        ((check, why),) = result.not_examined
        assert (check, why.split(" (")[0]) == ("ping", "no answer"), (
            "the ping must not be called fine"
        )


async def test_a_ping_with_an_error_status_is_reported_with_it() -> None:
    async with scripted(faults=[{"path": "/v1/ping", "what": {"status": 404}}]) as sandbox:
        result = await examined(sandbox.url, checks=HELLO)
        assert seen(result, "ping-dead") == "programs run, but GET /v1/ping returns 404"


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
        (
            Answer.json({}, 429, (("retry-after", "1"),)),
            "throttled-at-rest",
            "429 with Retry-After 1",
        ),
        (Answer.json({}, 503), "throttled-at-rest", "503"),
        (Answer.json({"detail": "boom"}, 500), "server-error", "500"),
        (
            Answer.text("upstream request timeout", 504),
            "server-error",
            "504: upstream request timeout",
        ),
        (Answer.json({"result": 42}), "other-service", "not in the format of Sandbox Fusion"),
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
async def test_an_answer_that_is_not_a_sandboxs_is_identified(
    answer: Answer, expected: str, telling: str
) -> None:
    async with always(answer) as url:
        result = await examined(f"{url}/run_code")
        assert ids(result) == {expected}
        assert breaking(result) == [expected]
        assert telling in seen(result, expected)
        assert "s3cr3t" not in str(result.findings)
        assert result.reached is True


async def test_redirect_that_drops_the_body_is_explained() -> None:
    async with always(Answer(302, headers=(("location", "https://box.test/run_code"),))) as url:
        (lost,) = (await examined(url)).findings
    assert "as a GET without the program" in lost.training
    assert "https://box.test/run_code" in lost.change


@pytest.mark.parametrize("location", ["/run_code", "{url}/run_code", ""])
async def test_a_redirect_that_leads_nowhere_is_blamed_on_the_gateway(location: str) -> None:
    async def redirect(request: Request) -> Answer:
        target = location.format(url=f"http://{request.headers['Host']}")
        return Answer(301, headers=(("location", target),) if target else ())

    async with answering(redirect) as url:
        result = await examined(url.replace("http://", "http://user:hunter2@"))
    (found,) = result.findings
    assert found.id == "redirect"
    assert "correct the gateway" in found.change
    assert "put the final address" not in found.change


async def test_no_finding_if_the_required_token_is_sent() -> None:
    async with scripted() as sandbox, forwarding(sandbox.url, token="opens-it") as url:
        assert breaking(await examined(url, checks=HELLO)) == ["authentication"]
        result = await examined(url, checks=HELLO, headers={"Authorization": "Bearer opens-it"})
        assert ids(result) == set()


async def test_a_connection_reset_for_every_program_breaks_training() -> None:
    async with scripted(faults=[{"what": {"reset": True}}]) as sandbox:
        result = await examined(sandbox.url)
        assert ids(result) == {"connection-lost"}
        assert breaking(result) == ["connection-lost"]


@asynccontextmanager
async def answering_with(reply: bytes) -> AsyncIterator[str]:
    """A server that sends these bytes on every connection and closes it; yields its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(reply)
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/run_code"


@pytest.mark.parametrize(
    "reply", [b"SSH-2.0-OpenSSH_9.2\r\n", b"220 mail ESMTP\r\n", b"-ERR unknown command\r\n"]
)
async def test_a_server_that_does_not_speak_http_is_another_service(reply: bytes) -> None:
    async with answering_with(reply) as url:
        result = await examined(url)
    assert breaking(result) == ["other-service"]
    assert "does not speak HTTP" in seen(result, "other-service")
    assert "correct host and port" in result.findings[-1].change


async def test_a_server_that_closes_every_connection_may_be_the_wrong_port() -> None:
    async with answering_with(b"") as url:
        result = await examined(url)
    assert breaking(result) == ["connection-lost"]
    assert "the ping got no answer either" in seen(result, "connection-lost")
    assert "check that this is the port" in result.findings[-1].change


async def test_a_missing_python_is_reported_with_its_error() -> None:
    broken = {
        "pattern": "6",
        "exit": 127,
        "errors": "/bin/bash: line 1: python: command not found\n",
    }
    async with FakeSandbox(executor="scripted", scripts=[broken]) as sandbox:
        result = await examined(sandbox.url)
        assert breaking(result) == ["program-fails"]
        assert "python: command not found" in seen(result, "program-fails")


async def test_a_success_without_the_expected_output_breaks_training() -> None:
    async with FakeSandbox(executor="scripted") as sandbox:
        result = await examined(sandbox.url)
        assert breaking(result) == ["wrong-output"]
        assert "is a Success with the output ''" in seen(result, "wrong-output")


async def test_https_to_a_plain_http_port_breaks_training() -> None:
    async with scripted() as sandbox:
        result = await examined(f"https://127.0.0.1:{sandbox.port}/run_code")
        assert ids(result) == {"https-to-plain-port"}
        assert breaking(result) == ["https-to-plain-port"]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """A certificate authority that is not trusted."""
    return trustme.CA()


def server_side(authority: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_http_to_a_tls_port_breaks_training(authority: trustme.CA) -> None:
    async with serving_tls(server_side(authority, "127.0.0.1")) as port:
        result = await examined(f"http://127.0.0.1:{port}/run_code")
        assert ids(result) == {"http-to-tls-port"}
        assert breaking(result) == ["http-to-tls-port"]


async def test_http_to_a_gateway_that_rejects_it_breaks_training() -> None:
    refusal = Answer.text("400 The plain HTTP request was sent to HTTPS port", 400)

    async def handler(request: Request) -> Answer:
        return refusal

    async with answering(handler) as url:
        assert breaking(await examined(url)) == ["http-to-tls-port"]


@pytest.mark.parametrize("name", ["127.0.0.1", "elsewhere.test"])
async def test_untrusted_certificate_breaks_training(authority: trustme.CA, name: str) -> None:
    async with serving_tls(server_side(authority, name)) as port:
        result = await examined(f"https://127.0.0.1:{port}/run_code")
        assert ids(result) == {"certificate"}
        assert breaking(result) == ["certificate"]
        assert "certificate" in seen(result, "certificate")


async def test_a_failing_tls_handshake_breaks_training() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x28")  # a TLS alert: handshake failure
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    try:
        result = await examined(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/run_code")
    finally:
        server.close()
    assert breaking(result) == ["tls-fails"]


async def test_a_working_sandbox_has_no_findings() -> None:
    async with scripted() as sandbox:
        result = await examined(f"{sandbox.url}/run_code", checks=HELLO)
        assert result.findings == []
        assert result.not_examined == []
        assert GREETS.prints == "sfusion 42\n"
