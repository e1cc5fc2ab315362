"""The metrics page of the fakes and the proxy, read by Prometheus' own parser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer
from sfusion.fakes.wire import FakeServer
from tests.fakes.wire.raw import PING, RawAnswer, get, one, post, run_code
from tests.sfusion_tools.sandbox.helpers import in_virtual_time, until

ODD = 'half "open\\ {x="1"}\nnext'
FAULT = {"name": ODD, "first": 2, "what": {"status": 503}}
CHAT = post(
    "/v1/chat/completions",
    json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode(),
)


@asynccontextmanager
async def serving(kind: str, **options: Any) -> AsyncIterator[FakeServer]:
    match kind:
        case "sandbox":
            async with FakeSandbox(**options) as server:
                yield server
        case "sglang":
            async with FakeSGLangServer(**options) as server:
                yield server
        case "proxy":
            async with FakeSandbox() as upstream, FaultProxy(upstream.url, **options) as server:
                yield server


EVERY = pytest.mark.parametrize("kind", ["sandbox", "sglang", "proxy"])
WORK = {"sandbox": run_code(), "sglang": CHAT, "proxy": run_code()}
ROUTE = {"sandbox": "/run_code", "sglang": "/v1/chat/completions", "proxy": "/run_code"}


class Scrape:
    def __init__(self, page: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(page)}

    def value(self, family: str, **labels: str) -> float:
        """Return the sample with these labels, 0 if there is none."""
        found = [
            s.value for s in self.families[family].samples if labels.items() <= s.labels.items()
        ]
        assert len(found) <= 1, "the same labels twice"
        return found[0] if found else 0


async def scrape(server: FakeServer, **headers: str) -> Scrape:
    if server.token is not None:
        headers = {"x-sfusion-token": server.token, **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    answer = await one(
        server.port, f"GET /__sfusion/metrics HTTP/1.1\r\nhost: localhost\r\n{lines}\r\n".encode()
    )
    assert (answer.status, answer.header("content-type")) == (
        200,
        "text/plain; version=0.0.4; charset=utf-8",
    )
    return Scrape(answer.body.decode())


@EVERY
async def test_requests_are_counted_by_route_and_status_and_strikes_by_rule(kind: str) -> None:
    async with serving(kind, faults=[FAULT]) as server:
        for _ in range(5):
            await one(server.port, WORK[kind])
        for path in ("/nowhere", "/elsewhere?x=1", '/"quoted\\'):
            await one(server.port, get(path))
        await one(server.port, b"PROPFIND /run_code HTTP/1.1\r\nhost: localhost\r\n\r\n")
        page = await scrape(server)
        again = await scrape(server)
        assert server.metrics().count("\n") > 10
    requests = "sfusion_server_requests"
    assert page.value(requests, route=ROUTE[kind], status="200", method="POST") == 3
    assert page.value(requests, route=ROUTE[kind], status="503", method="POST") == 2
    assert page.value(requests, route="other", method="GET") == 3, (
        "what clients make up shares one sample"
    )
    assert page.value(requests, method="other") == 1
    assert page.value("sfusion_server_faults", rule=ODD) == 2
    assert page.value("sfusion_server_connections") == 10
    assert page.value("sfusion_server_info", kind=type(server).__name__) == 1
    assert page.families[requests].samples == again.families[requests].samples, (
        "a scrape is not counted"
    )


@EVERY
async def test_requests_in_flight_and_unanswered_ones_are_shown(kind: str) -> None:
    async with serving(kind, faults=[{"name": "h", "what": "hang"}]) as server:
        hanging = asyncio.create_task(one(server.port, WORK[kind]))
        await until(lambda: server.ledger.strikes)
        page = await scrape(server)
        assert page.value("sfusion_server_in_flight") == 1
        assert page.value("sfusion_server_open_connections") >= 1
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        await until(lambda: not server.ledger.in_flight)
        page = await scrape(server)
    assert page.value("sfusion_server_in_flight") == 0
    assert page.value("sfusion_server_requests", route=ROUTE[kind], status="none") == 1


@pytest.mark.parametrize("kind", ["sandbox", "proxy"])
async def test_requests_in_the_queue_are_shown(kind: str) -> None:
    async with serving(
        kind, model={"kind": "queue", "workers": 1}, faults=[{"what": "hang"}]
    ) as server:
        waiting = [asyncio.create_task(one(server.port, WORK[kind])) for _ in range(3)]
        await until(lambda: server.ledger.in_flight == 3 and server.ledger.strikes)
        assert (await scrape(server)).value("sfusion_server_queue") == 2
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def test_a_proxy_says_what_it_forwarded_and_not_what_ran() -> None:
    async with FakeSandbox() as upstream, FaultProxy(upstream.url) as proxy:
        await one(proxy.port, run_code())
        upstream.crash()
        await one(proxy.port, run_code())
        page = await scrape(proxy)
        assert upstream.ledger.requests == 1, "the page is the proxy's own"
    counts = [
        page.value(f"sfusion_server_{name}")
        for name in ("forwarded", "replied", "upstream_failures")
    ]
    assert counts == [1, 1, 1]
    assert "sfusion_server_executions" not in page.families


async def test_strikes_in_the_engine_and_at_the_socket_are_shown() -> None:
    faults = [{"name": "dies", "what": "abort"}, {"name": "slow", "what": {"delay": "1ms"}}]
    async with FakeSGLangServer(faults=faults) as server:
        await one(server.port, CHAT)
        page = await scrape(server)
    assert page.value("sfusion_server_faults", rule="dies") == 1
    assert page.value("sfusion_server_faults", rule="slow") == 1
    assert page.value("sfusion_engine_prompt_tokens") > 0


def test_uptime_is_in_the_time_of_the_server_and_begins_again_with_a_restart() -> None:
    async def go() -> list[float]:
        await asyncio.sleep(100)
        async with FakeSandbox() as sandbox:
            await asyncio.sleep(600)
            before = (await scrape(sandbox)).value("sfusion_server_uptime_seconds")
            sandbox.crash()
            await sandbox.server.restart()
            await asyncio.sleep(60)
            return [before, (await scrape(sandbox)).value("sfusion_server_uptime_seconds")]

    assert in_virtual_time(go) == pytest.approx([600, 60], abs=1)


async def test_the_page_needs_the_token_of_the_admin_routes() -> None:
    async with FakeSandbox(token="s3cret") as sandbox:
        assert (await one(sandbox.port, get("/__sfusion/metrics"))).status == 401
        assert (await one(sandbox.port, PING)).status == 200
        page = await scrape(sandbox, authorization="Bearer s3cret")
    assert page.value("sfusion_server_requests", route="/v1/ping", status="200") == 1


def test_a_synchronous_caller_gets_the_page_too() -> None:
    with FakeSandbox() as sandbox:
        assert Scrape(sandbox.metrics()).value("sfusion_server_in_flight") == 0


@EVERY
async def test_a_reset_clears_the_counts(kind: str) -> None:
    async with serving(kind, faults=[FAULT]) as server:
        await one(server.port, WORK[kind])
        server.forget()
        page = await scrape(server)
    assert page.families["sfusion_server_requests"].samples == []
    assert page.value("sfusion_server_faults", rule=ODD) == 0


@pytest.mark.parametrize("kind", ["sandbox", "proxy"])  # the real sglang has such a route
async def test_no_route_of_the_real_server_is_shadowed(kind: str) -> None:
    async with serving(kind) as server:
        answer: RawAnswer = await one(server.port, get("/metrics"))
    assert answer.status == 404
