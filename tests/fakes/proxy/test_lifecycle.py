"""Starting, crashing, wedging, redirecting and stopping a proxy."""

from __future__ import annotations

import asyncio
import http.client
import json
import urllib.request

import pytest

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from tests.fakes.proxy.scripted_upstream import OK, UpstreamConnection, always, scripted_upstream
from tests.fakes.wire.raw import PING, Raw, Watch, one, run_code, whole


def named(name: str) -> bytes:
    """An answer that identifies its server."""
    return OK.replace(b"ok", name.encode()[:2])


async def test_synchronous_context_manager_runs_the_proxy_in_a_thread() -> None:
    def use() -> None:
        with FakeSandbox() as first, FakeSandbox() as second, FaultProxy(first.url) as proxy:
            for sandbox in (first, second):
                proxy.upstream = sandbox.url
                body = json.dumps({"code": "# sfusion:call=c1", "language": "python"}).encode()
                request = urllib.request.Request(
                    proxy.url + "/run_code", body, {"content-type": "application/json"}
                )
                assert (
                    urllib.request.build_opener(urllib.request.ProxyHandler({}))
                    .open(request)
                    .status
                    == 200
                )
                assert sandbox.ledger.executions("c1") == 1
            proxy.crash()
            with pytest.raises(ConnectionError):
                http.client.HTTPConnection("127.0.0.1", proxy.port).request("GET", "/v1/ping")

    await asyncio.to_thread(use)


async def test_changing_the_upstream_redirects_new_requests_and_lets_old_ones_finish() -> None:
    asked, go_on, dropped = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow(peer: UpstreamConnection) -> None:
        await peer.request()
        asked.set()
        await go_on.wait()
        await peer.send(named("old"))
        await peer.gone()
        dropped.set()

    events = Watch()
    async with (
        scripted_upstream(slow) as old,
        scripted_upstream(always(named("new"))) as new,
        FaultProxy(old.url, journal=events.note) as proxy,
        Raw(proxy.port) as raw,
    ):
        assert proxy.upstream == old.url
        await raw.send(run_code("# sfusion:call=c1"))
        await asked.wait()
        proxy.upstream = f"http://me:pass@127.0.0.1:{new.port}/run_code?key=1"
        assert proxy.upstream == new.url
        assert (await one(proxy.port, run_code())).body == b"ne"
        go_on.set()
        assert (await raw.answer()).body == b"ol"
        await dropped.wait()  # no connection to the old server is kept
        assert (await raw.ask(run_code())).body == b"ne"
    assert next(event for event in events if event["event"] == "upstream")["url"] == new.url
    assert proxy.ledger.upstream_failed == 0


async def test_crash_cancels_forwarded_requests_and_restart_serves_again() -> None:
    asked, dropped = asyncio.Event(), asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        head, _ = await peer.request()
        if b"slow" in head:
            asked.set()
            await peer.gone()
            dropped.set()
        await peer.send(OK)

    events = Watch()
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, journal=events.note) as proxy,
    ):
        port = proxy.port
        async with Raw(port) as raw:
            await raw.send(run_code(path="/slow"))
            await asked.wait()
            proxy.crash()
            assert await raw.rest() == (b"", "reset")
        await dropped.wait()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        proxy.restart()
        await events.until(lambda: proxy.server.running)
        assert (await one(port, run_code())).body == b"ok"
    assert events.kinds()[:5] == ["arrived", "forwarded", "crash", "broken_off", "unanswered"]


async def test_wedged_proxy_forwards_only_the_ping() -> None:
    events = Watch()
    async with FakeSandbox() as sandbox, FaultProxy(sandbox.url, journal=events.note) as proxy:
        proxy.wedge()
        assert (await one(proxy.port, PING)).body == b'"pong"'
        async with Raw(proxy.port) as raw:
            await raw.send(run_code("# sfusion:call=c1"))
            await events.until(lambda: proxy.ledger.strikes.get("wedge") == 1)
            assert sandbox.ledger.arrived == 0
            proxy.unwedge()
            assert (await raw.answer()).status == 200
    assert sandbox.ledger.arrived == 1


@pytest.mark.parametrize(
    ("status", "says"),
    [(200, ""), (404, ""), (500, "{} answers 500 to /v1/ping")],
)
async def test_an_upstream_is_there_if_it_answers_the_ping_without_an_error_of_its_own(
    status: int, says: str
) -> None:
    answer = OK.replace(b"200 OK", b"%d X" % status)
    async with scripted_upstream(always(answer)) as server, FaultProxy(server.url) as proxy:
        assert await proxy.ping_upstream() == says.format(proxy.upstream)


async def test_stop_leaves_no_task_and_no_connection() -> None:
    before = asyncio.all_tasks()
    async with FakeSandbox() as sandbox:
        proxy = await FaultProxy(sandbox.url).start()
        assert (await one(proxy.port, run_code())).status == 200
        await proxy.stop()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        # It can be started again.
        async with proxy:
            assert (await one(proxy.port, run_code())).status == 200
    assert asyncio.all_tasks() == before


async def test_stop_waits_for_requests_in_flight() -> None:
    events = Watch()
    async with FakeSandbox(journal=events.note) as sandbox:
        proxy = await FaultProxy(sandbox.url).start()
        async with Raw(proxy.port) as raw:
            await raw.send(run_code('# sfusion:call=a seconds=0.1 prints="late"'))
            await events.until(lambda: sandbox.ledger.executing == 1)
            stopping = asyncio.create_task(proxy.stop(grace=20))
            assert (await raw.answer()).json["run_result"]["stdout"] == "late"
            await stopping


async def test_hanging_upstream_does_not_block_a_change_of_upstream_or_a_stop() -> None:
    asked = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        asked.set()
        await peer.gone()

    async with scripted_upstream(serve) as server, scripted_upstream(always(OK)) as other:
        proxy = await FaultProxy(server.url).start()
        hanging = asyncio.create_task(whole(proxy.port, run_code()))
        await asked.wait()
        proxy.upstream = other.url
        assert (await one(proxy.port, run_code())).body == b"ok"
        await proxy.stop(grace=0.05)
        assert (await hanging)[0] == b""
