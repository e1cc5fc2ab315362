"""What the proxy knows and does not know: ledger, journal, and an upstream that fails."""

from __future__ import annotations

import asyncio
import json
import ssl
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.proxy.forwarding import in_words
from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.proxy.scripted_upstream import OK, UpstreamConnection, always, scripted_upstream
from tests.fakes.wire.raw import PING, Raw, Watch, get, one, post, run_code, whole

NOBODY = "http://127.0.0.1:1"


async def test_ledger_counts_forwarded_and_replied_attempts() -> None:
    faults = [
        {"first_attempts": 1, "what": {"status": 503}},
        {"first_attempts": 2, "phase": "after", "what": "reset"},
    ]
    async with FakeSandbox() as sandbox, FaultProxy(sandbox.url, faults=faults) as proxy:
        for _ in range(3):
            await whole(
                proxy.port,
                run_code("# sfusion:call=c1").replace(b"host:", b"connection: close\r\nhost:"),
            )
        await one(proxy.port, PING)
        ledger = json.loads((await one(proxy.port, get("/__sfusion/ledger", proxy.token))).body)
    assert ledger == proxy.ledger.snapshot() | {
        "connections": ledger["connections"],
        "requests": ledger["requests"],
    }
    unknown = {"started": None, "finished": None}
    assert ledger["calls"]["c1"] == {
        "arrived": 3,
        "forwarded": 2,
        "replied": 2,
        **unknown,
        "statuses": [503, 0, 200],
    }
    assert [ledger[key] for key in ("arrived", "forwarded", "replied", "upstream_failed")] == [
        3,
        2,
        2,
        0,
    ]
    assert [ledger[key] for key in ("started", "finished", "executing", "peak_executing")] == [
        None
    ] * 4
    assert (ledger["in_flight"], ledger["peak_in_flight"]) == (0, 1)
    assert proxy.ledger.executions("c1") is None
    assert sandbox.ledger.executions("c1") == 2, "the server knows"
    assert proxy.ledger.started is None


async def test_journal_has_forwarded_and_replied_and_never_claims_that_code_ran() -> None:
    events = Watch()
    faults = [
        {"name": f"r-{phase}", "phase": phase, "what": {"delay": 0}}
        for phase in ("before", "during", "after", "body")
    ]
    async with (
        FakeSandbox() as sandbox,
        FaultProxy(sandbox.url, faults=faults, journal=events.note) as proxy,
    ):
        await one(proxy.port, run_code("# sfusion:call=c1 seconds=0.02"))
    summary = [(event["event"], event.get("rule"), event.get("code_ran")) for event in events]
    assert summary == [
        ("arrived", None, None),
        ("strike", "r-before", "no"),
        ("forwarded", None, None),
        ("strike", "r-during", "unknown"),
        ("replied", None, None),
        ("strike", "r-after", "unknown"),
        ("strike", "r-body", "unknown"),
        ("answered", None, None),
    ]
    assert {event["call"] for event in events} == {"c1"}
    assert {event["attempt"] for event in events} == {1}


async def test_upstream_that_is_down_gives_502_and_is_counted() -> None:
    events = Watch()
    async with FaultProxy(NOBODY, journal=events.note) as proxy:
        answer = await one(proxy.port, run_code("# sfusion:call=c1"))
        assert answer.status == 502
        assert answer.json == {
            "detail": f"sfusion proxy: {NOBODY} cannot be reached: connection refused"
        }
        assert (await one(proxy.port, PING)).status == 502
    assert events.kinds() == ["arrived", "upstream_failed", "answered", "upstream_failed"]
    assert events[1]["why"] == f"{NOBODY} cannot be reached: connection refused"
    ledger = proxy.ledger.snapshot()
    assert (
        ledger["arrived"],
        ledger["forwarded"],
        ledger["replied"],
        ledger["upstream_failed"],
    ) == (1, 0, 0, 2)
    assert ledger["calls"]["c1"]["statuses"] == [502]


async def test_retry_after_of_the_upstream_is_in_the_journal() -> None:
    events = Watch()
    sent = b"HTTP/1.1 429 Slow Down\r\nRetry-After: 7\r\ncontent-length: 0\r\n\r\n"
    async with (
        scripted_upstream(always(sent)) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        await one(proxy.port, run_code())
    assert (events[-1]["event"], events[-1]["status"], events[-1]["retry_after"]) == (
        "answered",
        429,
        "7",
    )


async def test_strike_on_a_request_that_was_not_forwarded_has_code_ran_no() -> None:
    events = Watch()
    faults = [{"what": {"content_type": "text/html"}}]
    async with FaultProxy(NOBODY, faults=faults, journal=events.note) as proxy:
        answer = await one(proxy.port, run_code("# sfusion:call=c1"))
    assert answer.header("content-type") == "text/html"
    assert [event["code_ran"] for event in events if event["event"] == "strike"] == ["no"]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "closed the connection without an answer"),
        (b"HTTP/1.1 200 OK\r\nconte", "closed the connection without an answer"),
        (b"this is not HTTP\r\n\r\n", "answered with something that is not HTTP"),
    ],
    ids=["nothing", "half a head", "no HTTP"],
)
async def test_upstream_without_a_valid_answer_gives_502_and_code_ran_unknown(
    sent: bytes, why: str
) -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(sent)

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        answer = await one(proxy.port, run_code("# sfusion:call=c1"))
        assert answer.status == 502
        assert answer.json["detail"] == f"sfusion proxy: {server.url} {why}"
    assert events.kinds() == ["arrived", "forwarded", "upstream_failed", "answered"]
    assert proxy.ledger.calls["c1"].as_dict() == {
        "arrived": 1,
        "forwarded": 1,
        "replied": 0,
        "started": None,
        "finished": None,
        "statuses": [502],
    }


async def test_post_is_never_sent_twice_but_a_get_may_be() -> None:
    asked: list[bytes] = []

    async def serve(peer: UpstreamConnection) -> None:
        """Answer once, then close on the second request of the connection."""
        asked.append((await peer.request())[0].split(b" ")[0])
        await peer.send(OK)
        asked.append((await peer.request())[0].split(b" ")[0])

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        assert (await one(proxy.port, post("/x", b"{}"))).status == 200
        assert (await one(proxy.port, post("/x", b"{}"))).status == 502
        assert asked == [b"POST", b"POST"]
        assert (await one(proxy.port, get("/x"))).status == 200
        assert (await one(proxy.port, get("/x"))).status == 200
        assert asked[2:] == [b"GET", b"GET", b"GET"], (
            "the second GET was repeated on a new connection"
        )
    assert proxy.ledger.upstream_failed == 1


async def test_proxy_waits_for_a_hanging_upstream_as_long_as_the_client_does() -> None:
    asked = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        asked.set()
        await peer.gone()

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        async with Raw(proxy.port) as raw:
            await raw.send(run_code("# sfusion:call=c1"))
            await asked.wait()
            assert proxy.ledger.in_flight == 1
        await proxy.stop(grace=0.05)
    assert events.kinds() == ["arrived", "forwarded", "broken_off", "unanswered"]


async def test_upstream_crash_fails_requests_under_way_and_later_ones_succeed_after_restart() -> (
    None
):
    events = Watch()
    async with (
        FakeSandbox(journal=events.note) as sandbox,
        FaultProxy(sandbox.url) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(run_code("# sfusion:call=c1 seconds=60", run_timeout=100))
        await events.until(lambda: sandbox.ledger.executing == 1)
        sandbox.crash()
        failed = await raw.answer()
        assert failed.status == 502
        assert (
            "broke off" in failed.json["detail"] or "closed the connection" in failed.json["detail"]
        )
        assert (await raw.ask(run_code("# sfusion:call=c2"))).status == 502
        sandbox.restart()
        await events.until(lambda: sandbox.server.running)
        assert (await raw.ask(run_code("# sfusion:call=c2"))).status == 200
    assert proxy.ledger.calls["c2"].statuses == [502, 200]


async def test_forwarding_loop_is_answered_with_508() -> None:
    async with FaultProxy(NOBODY) as first, FaultProxy(first.url) as second:
        first.upstream = second.url
        answer = await one(first.port, run_code("# sfusion:call=c1"))
    assert answer.status == 508
    assert answer.json["detail"].endswith("the upstream leads back to this proxy")


def test_failure_texts_do_not_quote_the_request() -> None:
    key: Any = aiohttp.client_reqrep.ConnectionKey(
        "secret.example", 443, True, True, None, None, None
    )
    refused = OSError(111, "Connect call failed ('10.0.0.1', 443)")
    errors = {
        aiohttp.ClientConnectorDNSError(key, refused): "its name cannot be resolved",
        aiohttp.ClientConnectorCertificateError(
            key, ssl.SSLCertVerificationError("secret")
        ): "is not trusted",
        aiohttp.ClientConnectorSSLError(key, ssl.SSLError(1, "secret")): "the TLS handshake failed",
        aiohttp.ClientConnectorError(key, refused): "connection refused",
        aiohttp.ConnectionTimeoutError("https://user:secret@host"): "no connection within 10 s",
        aiohttp.ClientOSError(104, "secret"): "connection reset by peer",
        aiohttp.ClientConnectionError("secret"): "did not answer (ClientConnectionError)",
        aiohttp.ClientOSError(): "connection lost",
    }
    for error, words in errors.items():
        assert words in in_words(error), error
        assert "secret" not in in_words(error)


async def test_forget_clears_the_ledger_and_restarts_the_faults() -> None:
    rules = [{"first": 1, "what": {"status": 503}}]
    async with (
        scripted_upstream(always(OK)) as server,
        FaultProxy(server.url, faults=rules) as proxy,
    ):
        assert [(await one(proxy.port, run_code())).status for _ in range(2)] == [503, 200]
        proxy.forget()
        ledger = proxy.ledger.snapshot()
        assert (ledger["arrived"], ledger["forwarded"], ledger["started"], ledger["calls"]) == (
            0,
            0,
            None,
            {},
        )
        assert (await one(proxy.port, run_code())).status == 503
