"""The event logs of fakes and proxies: one line for each request for work, with the wall-clock
time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
from typer.testing import CliRunner

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire.core import RequestLog, ServedRequest
from sfusion.fakes.wire.message import Answer
from sfusion.harness.cli import app
from sfusion.harness.core.logs.reading import read_records
from sfusion_tools.record import Call
from tests.fakes.proxy.scripted_upstream import always, scripted_upstream
from tests.sfusion_tools.sandbox.helpers import until

PROGRAM = {"language": "python", "code": "print(1)  # sfusion:call=c17"}


async def post(url: str, *, seconds: float = 30, **body: Any) -> int | None:
    try:
        timeout = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{url}/run_code", json=body, timeout=timeout) as answer,
        ):
            await answer.read()
            return answer.status
    except (aiohttp.ClientError, TimeoutError):
        return None


def read(folder: Path) -> list[Call]:
    return list(read_records([folder]))


def test_a_fake_logs_each_request_with_its_status_fault_and_outcome(tmp_path):
    faults = [
        {"name": "busy", "code": "c1 ", "what": {"status": 429, "retry_after": 2.5}},
        {"name": "cut", "code": "c2 ", "what": "reset"},
        {"name": "half", "code": "c3 ", "phase": "body", "what": {"truncate": 0.5}},
    ]

    async def run() -> str:
        async with FakeSandbox(
            executor="scripted", faults=faults, event_log=tmp_path / "fake.ndjson"
        ) as sandbox:
            for number, ending in enumerate((0, 0, 0, 0, 1), 1):
                await post(
                    sandbox.url, code=f"# sfusion:call=c{number} exit={ending}", language="python"
                )
            async with aiohttp.ClientSession() as session, session.get(f"{sandbox.url}/v1/ping"):
                return sandbox.url

    before = time.time()
    url = asyncio.run(run())
    records = read(tmp_path)
    assert [one.call for one in records] == ["c1", "c2", "c3", "c4", "c5"]
    attempts = [attempt for one in records for attempt in one.attempts]
    assert [one.status for one in attempts] == [429, None, 200, 200, 200]
    assert [one.fault for one in attempts] == ["busy", "cut", "half", None, None]
    assert [one.outcome for one in records] == [
        "throttled",
        "unreachable",
        None,
        "ok",
        "program_error",
    ]
    assert [one.outcome for one in attempts] == [one.outcome for one in records]
    assert attempts[0].retry_after == 2.5
    assert attempts[3].execution_time is not None
    assert all(one.sent > 50 and one.endpoint == url for one in attempts)
    assert attempts[3].received > 100
    assert {one.source for one in records} == {"server"}
    assert all(before <= one.began <= time.time() and one.seconds < 30 for one in records)


def test_queued_requests_count_with_the_bodies_that_they_hold(tmp_path):
    log = RequestLog(tmp_path / "events.ndjson", lambda: "http://sandbox")

    async def charged(size: int) -> int:
        before = log._log.room
        request = ServedRequest(
            call="c1",
            began=0.0,
            seconds=0.1,
            sent=10,
            answer=Answer(200, b"x" * size),
            fault=None,
            client_gone=False,
            spoiled=False,
        )
        log.ended(request)
        return before - log._log.room

    async def main() -> int:
        return await charged(1_000_000) - await charged(0)

    assert asyncio.run(main()) == 1_000_000


def test_a_proxy_names_the_server_behind_it(tmp_path):
    faults = [{"name": "gateway", "every": 2, "what": {"status": 502}}]

    async def run() -> str:
        async with (
            FakeSandbox(executor="scripted") as sandbox,
            FaultProxy(sandbox.url, faults=faults, event_log=tmp_path) as proxy,
        ):
            assert [await post(proxy.url, **PROGRAM) for _ in range(2)] == [200, 502]
            await sandbox.stop()
            assert await post(proxy.url, **PROGRAM) == 502
            return sandbox.url

    url = asyncio.run(run())
    records = read(tmp_path)
    assert [(one.outcome, one.attempts[0].fault) for one in records] == [
        ("ok", None),
        ("sandbox_error", "gateway"),
        ("sandbox_error", None),
    ]
    assert {one.attempts[0].endpoint for one in records} == {url}


def test_answers_of_a_server_that_is_no_sandbox_are_not_read_as_ends_of_programs(tmp_path):
    answer = b'{"text": "4"}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n"

    async def run() -> None:
        async with (
            scripted_upstream(always(head + answer)) as upstream,
            FaultProxy(upstream.url, event_log=tmp_path) as proxy,
            aiohttp.ClientSession() as session,
        ):
            for path in ("/generate", "/v1/chat/completions", "/run_code"):
                async with session.post(proxy.url + path, json={"text": "2 + 2"}) as reply:
                    assert await reply.read() == answer

    asyncio.run(run())
    assert [record.outcome for record in read(tmp_path)] == [None, None, "bad_response"]
    output = CliRunner().invoke(app, ["look", str(tmp_path)]).output
    assert "33.3% failed" in output, output


def test_a_client_that_leaves_is_taken_for_one_that_waited_too_long(tmp_path):
    async def run() -> None:
        async with FakeSandbox(faults=[{"what": "hang"}], event_log=tmp_path) as sandbox:
            task = asyncio.create_task(post(sandbox.url, **PROGRAM))
            await until(lambda: sandbox.ledger.arrived)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(lambda: not sandbox.ledger.in_flight)

    asyncio.run(run())
    (record,) = read(tmp_path)
    assert (record.outcome, record.attempts[0].status) == ("transport_timeout", None)
