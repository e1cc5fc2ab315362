"""Every kind of fault in every phase, as seen by a raw TCP client.

EFFECTS holds the check for each; a kind or phase without an entry fails a test.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from sfusion.fakes.faults import KINDS, FaultError, Phase, SandboxError, Status
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.wire.connection import Connection
from sfusion.fakes.wire.server import ConnectionSite
from tests.cases import every
from tests.fakes.wire.effects import EFFECTS, PROGRAM, check_effect, rule_of, silence
from tests.fakes.wire.raw import PING, Raw, Watch, one, post, run_code, whole

# How much of the code has run when a fault strikes in a phase.
RAN = {"connect": "no", "before": "no", "during": "began", "after": "ended", "body": "ended"}


def test_every_kind_and_phase_has_a_check() -> None:
    assert set(EFFECTS) == {
        (kind, phase) for kind, action in KINDS.items() for phase in action.phases
    }


@every(EFFECTS, str)
async def test_fault_has_its_effect_at_the_socket(case: tuple[str, Phase]) -> None:
    kind, phase = case
    events = Watch()
    async with FakeSandbox(faults=[rule_of(kind, phase)], journal=events.note) as sandbox:
        await check_effect(sandbox, events, kind, phase, RAN[phase])
    assert sandbox.ledger.in_flight == 0
    assert sandbox.ledger.strikes["r"] == sum(event["event"] == "strike" for event in events)


def test_fault_that_answers_a_connection_without_a_request_is_refused() -> None:
    nothing: Any = None
    site = ConnectionSite(nothing, nothing)
    with pytest.raises(FaultError, match="status cannot strike in phase 'connect'"):
        site.respond(Status(status=503))
    with pytest.raises(FaultError, match="sandbox_error cannot strike in phase 'connect'"):
        site.spoil(SandboxError())


async def test_program_keeps_running_after_a_reset_during_it() -> None:
    events = Watch()
    faults = [{"phase": "during", "what": "reset"}]
    async with FakeSandbox(faults=faults, journal=events.note) as sandbox:
        assert await whole(sandbox.port, PROGRAM) == (b"", "reset")
        await events.until(lambda: sandbox.ledger.finished == 1)
    assert sandbox.ledger.calls["c1"].finished == 1


async def test_program_without_a_connection_is_stopped_with_the_server() -> None:
    events = Watch()
    before = asyncio.all_tasks()
    sandbox = await FakeSandbox(
        faults=[{"phase": "during", "what": "reset"}], journal=events.note
    ).start()
    request = run_code("# sfusion:call=long seconds=3600", run_timeout=7200)
    assert await whole(sandbox.port, request) == (b"", "reset")
    await sandbox.stop(grace=0.01)
    assert asyncio.all_tasks() == before
    assert "broken_off" in events.kinds()


async def test_crash_cancels_running_programs() -> None:
    events = Watch()
    async with FakeSandbox(journal=events.note) as sandbox:
        raw = await Raw(sandbox.port).__aenter__()
        await raw.send(run_code("# sfusion:call=long seconds=3600", run_timeout=7200))
        await events.until(lambda: sandbox.ledger.executing == 1)
        sandbox.crash()
        assert await raw.rest() == (b"", "reset")
        raw.reset()
        await events.until(lambda: sandbox.ledger.executing == 0)
    record = sandbox.ledger.calls["long"]
    assert (record.started, record.finished, record.statuses) == (1, 0, [0])
    assert [event["event"] for event in events] == [
        "arrived",
        "started",
        "crash",
        "broken_off",
        "unanswered",
    ]


@pytest.mark.parametrize("pieces", [1, 2])
async def test_a_request_that_was_read_in_the_moment_of_a_crash_is_not_served(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Watch()
    real = Connection.data_received
    async with FakeSandbox(journal=events.note) as sandbox:

        def crashing(self: Connection, data: bytes) -> None:
            real(self, data)
            if b"print" in data:
                sandbox.crash()
            elif data:
                heard.set()

        monkeypatch.setattr(Connection, "data_received", crashing)
        heard = asyncio.Event()
        head, end, body = run_code("print(1)").partition(b"\r\n\r\n")
        async with Raw(sandbox.port) as raw:
            if pieces == 2:
                await raw.send(head + end)
                await heard.wait()
                await raw.send(body)
            else:
                await raw.send(head + end + body)
            assert await raw.rest() == (b"", "reset")
        for _ in range(20):
            await asyncio.sleep(0)  # a served request needs a few turns of the loop
    assert events.kinds() == ["crash"]


async def test_crashed_server_restarts_after_the_given_time() -> None:
    events = Watch()
    async with FakeSandbox(
        faults=[{"first": 1, "what": {"crash": "20ms"}}], journal=events.note
    ) as sandbox:
        port = sandbox.port
        assert (await whole(port, PROGRAM))[1] == "reset"
        await events.until(lambda: any(event["event"] == "restart" for event in events))
        assert (await one(port, PROGRAM)).status == 200
        assert sandbox.port == port


async def test_wedge_with_a_dead_ping_answers_nothing_until_it_is_over() -> None:
    events = Watch()
    faults = [{"first": 1, "what": {"wedge": {"ping": "dead", "seconds": "3s"}}}]
    async with (
        FakeSandbox(faults=faults, journal=events.note) as sandbox,
        Raw(sandbox.port) as ping,
    ):
        raw = await silence(sandbox, events)
        await ping.send(PING)
        await events.until(lambda: sandbox.ledger.strikes.get("wedge") == 2)
        assert (await ping.answer()).body == b'"pong"'
        assert (await raw.answer()).status == 200
        raw.reset()
    kinds = [event["event"] for event in events]
    assert kinds.index("unwedge") < kinds.index("answered")


async def test_hang_with_seconds_closes_without_an_answer() -> None:
    for phase in ("connect", "before", "after"):
        async with FakeSandbox(faults=[{"phase": phase, "what": {"hang": "20ms"}}]) as sandbox:
            assert await whole(sandbox.port, PROGRAM) == (b"", "closed"), phase


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("null", b'"stdout":null'),
        ("cut", b'"stdout":"hello\\n01234"'),
        ("huge", b'"stdout":"hello\\n0123456789yyyyyyyyyyy'),
        ("not_utf8", b'"stdout":"hello\\n0123456789\xff\xfe\xfa"'),
        ("decode_error", b"\"stdout\":\"[DecodeError] 'utf-8' codec can't decode byte 0xff"),
    ],
)
async def test_output_fault_changes_what_was_printed(what: str, seen: bytes) -> None:
    size = {"size": 11} if what in ("cut", "huge") else {}
    async with FakeSandbox(faults=[{"what": {"output": {"what": what, **size}}}]) as sandbox:
        answer = await one(sandbox.port, run_code('# sfusion:call=c prints="hello\\n0123456789"'))
    assert seen in answer.body
    assert b'"status":"Success"' in answer.body


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("json", b","),
        ("header", b"this line has no colon\r\n\r\n"),
        ("status_line", b"HTTP/1.1 OK 200\r\n"),
    ],
)
async def test_malformed_answer_has_the_chosen_defect(what: str, seen: bytes) -> None:
    async with FakeSandbox(faults=[{"what": {"malformed": what}}]) as sandbox:
        got, end = await whole(sandbox.port, PROGRAM)
    assert seen in got
    assert end == "closed"
    if what == "json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(got.partition(b"\r\n\r\n")[2])


async def test_truncation_by_bytes_can_end_in_a_reset_or_a_hang() -> None:
    for then, end in (("reset", "reset"), ("close", "closed")):
        async with FakeSandbox(faults=[{"what": {"truncate": {"at": 5, "then": then}}}]) as sandbox:
            got, ended = await whole(sandbox.port, PROGRAM)
            assert (got.partition(b"\r\n\r\n")[2], ended) == (b'{"sta', end)
    events = Watch()
    faults = [{"what": {"truncate": {"at": 5, "then": "hang"}}}]
    async with FakeSandbox(faults=faults, journal=events.note) as sandbox:
        async with Raw(sandbox.port) as raw:
            await raw.send(PROGRAM)
            await raw.reader.readuntil(b"\r\n\r\n")
            assert await raw.reader.readexactly(5) == b'{"sta'
        await events.until(lambda: sandbox.ledger.in_flight == 0)


async def test_several_faults_combine() -> None:
    events = Watch()
    faults = [
        {"name": "slow", "what": {"delay": "10ms"}},
        {"name": "lost", "what": {"output": "lost"}},
        {"name": "html", "what": {"content_type": "text/html"}},
        {"name": "slow-body", "what": {"drip": {"bytes": 100, "every": "1ms"}}},
    ]
    async with FakeSandbox(faults=faults, journal=events.note) as sandbox:
        answer = await one(sandbox.port, PROGRAM)
    assert answer.header("content-type") == "text/html"
    assert answer.json["run_result"]["stdout"] == ""
    assert [event["rule"] for event in events if event["event"] == "strike"] == [
        "slow",
        "lost",
        "html",
        "slow-body",
    ]


async def test_status_after_execution_hides_a_finished_run() -> None:
    faults = [{"first_attempts": 2, "phase": "after", "what": {"status": 504}}]
    async with FakeSandbox(faults=faults) as sandbox:
        statuses = [(await one(sandbox.port, PROGRAM)).status for _ in range(3)]
    assert statuses == [504, 504, 200]
    assert sandbox.ledger.executions("c1") == 3, (
        "a client that retries has run the code three times"
    )


async def test_refused_request_has_no_phase_after() -> None:
    async with FakeSandbox(faults=[{"phase": "after", "what": {"status": 504}}]) as sandbox:
        assert (await one(sandbox.port, post("/run_code", b"{}"))).status == 422
        assert sandbox.ledger.strikes == {}


async def test_pings_are_struck_only_by_rules_that_name_their_path() -> None:
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        assert (await one(sandbox.port, PING)).status == 200
        sandbox.set_faults([{"path": "/v1/*", "what": {"status": 503}}])
        assert (await one(sandbox.port, PING)).status == 503
        assert (await one(sandbox.port, PROGRAM)).status == 200
