"""Every kind of fault in every phase it can strike in, as a client with a bare socket sees it.

The table EFFECTS says for each what must be seen; a kind or phase without an entry fails a test.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from fakes.faults import KINDS, Phase
from fakes.sandbox import FakeSandbox
from tests.fakes.raw import PING, Raw, Watch, one, post, run_code, whole

PROGRAM = run_code('# sfusion:call=c1 prints="hello\\n" seconds=0.05')
OK = b'{"status":"Success","message":"","compile_result":null,"run_result":{"status":"Finished",'
Check = Callable[[FakeSandbox, Watch], Awaitable[None]]

# How much of the code has run when a fault strikes in a phase.
RAN = {"connect": "no", "before": "no", "during": "began", "after": "ended", "body": "ended"}


async def silence(sandbox: FakeSandbox, events: Watch) -> Raw:
    """A request that is struck and hangs: the server has it, and says nothing."""
    raw = await Raw(sandbox.port).__aenter__()
    await raw.send(PROGRAM)
    await events.until(lambda: any(event["event"] == "strike" for event in events))
    assert not raw.reader._buffer  # type: ignore[attr-defined] # what has come and was not read
    return raw


async def hangs(sandbox: FakeSandbox, events: Watch) -> None:
    raw = await silence(sandbox, events)
    sandbox.clear_faults()
    assert (await one(sandbox.port, PING)).status == 200, "others are served meanwhile"
    raw.reset()
    await events.until(lambda: sandbox.ledger.in_flight == 0)


async def hangs_unread(sandbox: FakeSandbox, events: Watch) -> None:
    raw = await silence(sandbox, events)
    assert sandbox.ledger.requests == 0
    raw.reset()


async def resets(sandbox: FakeSandbox, events: Watch) -> None:
    assert await whole(sandbox.port, PROGRAM) == (b"", "reset")


async def closes(sandbox: FakeSandbox, events: Watch) -> None:
    assert await whole(sandbox.port, PROGRAM) == (b"", "closed")


async def says_503(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.head.startswith(b"HTTP/1.1 503 Service Unavailable\r\ndate: ")
    assert answer.header("retry-after") == "1.5"
    assert answer.header("x-gateway") == "g1"
    assert answer.body == b"upstream is down"


async def answers_whole(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.body.startswith(OK)


async def answers_half_then(sandbox: FakeSandbox, end: str) -> None:
    got, ended = await whole(sandbox.port, PROGRAM)
    head, _, body = got.partition(b"\r\n\r\n")
    promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
    assert len(body) == promised // 2
    assert ended == end


async def half_then_reset(sandbox: FakeSandbox, events: Watch) -> None:
    await answers_half_then(sandbox, "reset")


async def half_then_close(sandbox: FakeSandbox, events: Watch) -> None:
    await answers_half_then(sandbox, "closed")


async def half_then_silence(sandbox: FakeSandbox, events: Watch) -> None:
    async with Raw(sandbox.port) as raw:
        await raw.send(PROGRAM)
        head = await raw.reader.readuntil(b"\r\n\r\n")
        promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
        await raw.reader.readexactly(promised // 2)
        assert sandbox.ledger.in_flight == 1
    await events.until(lambda: sandbox.ledger.in_flight == 0)


async def drips(sandbox: FakeSandbox, events: Watch) -> None:
    pieces = []
    async with Raw(sandbox.port) as raw:
        await raw.send(PROGRAM)
        head = await raw.reader.readuntil(b"\r\n\r\n")
        promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
        while sum(map(len, pieces)) < promised:
            pieces.append(await raw.reader.read(65536))
    assert b"".join(pieces).startswith(OK)
    assert len(pieces) > 2, "it came in pieces"


async def malformed_chunk(sandbox: FakeSandbox, events: Watch) -> None:
    got, end = await whole(sandbox.port, PROGRAM)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    size, _, rest = body.partition(b"\r\n")
    assert rest[int(size, 16) + 2 :].startswith(b"zz\r\n"), "the second chunk's size is no number"
    assert end == "closed"


async def wrong_type(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.header("content-type") == "text/html"
    assert answer.body.startswith(OK)


async def fails_itself(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.status == 200
    assert answer.json["status"] == "SandboxError"
    assert answer.json["run_result"]["stderr"] == answer.json["message"]


async def says_timeout(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, run_code("# sfusion:call=c1 seconds=0.05", run_timeout=0.06))
    result = answer.json["run_result"]
    assert (answer.json["status"], result["status"]) == ("Failed", "TimeLimitExceeded")
    assert (result["return_code"], result["stdout"]) == (None, "partial")


async def prints_nothing(sandbox: FakeSandbox, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.json["status"] == "Success"
    assert answer.json["run_result"]["stdout"] == ""


async def crashes(sandbox: FakeSandbox, events: Watch) -> None:
    async with Raw(sandbox.port) as other:
        await other.ask(PING)
        assert (await whole(sandbox.port, PROGRAM))[1] == "reset"
        assert await other.rest() == (b"", "reset"), "all connections are gone"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", sandbox.port)
    sandbox.clear_faults()
    sandbox.restart()
    await events.until(lambda: sandbox.server.running)
    assert (await one(sandbox.port, PING)).status == 200, "back on the same port"


async def wedges(sandbox: FakeSandbox, events: Watch) -> None:
    raw = await silence(sandbox, events)
    sandbox.clear_faults()
    assert (await one(sandbox.port, PING)).body == b'"pong"', "the ping is alive"
    second = await Raw(sandbox.port).__aenter__()
    await second.send(PROGRAM)
    await events.until(lambda: sandbox.ledger.in_flight == 2)
    sandbox.unwedge()
    assert (await second.answer()).body.startswith(OK)
    assert (await raw.answer()).body.startswith(OK)
    raw.reset()
    second.reset()


async def wedges_unread(sandbox: FakeSandbox, events: Watch) -> None:
    await wedges(sandbox, events)


EXTRA: dict[str, Any] = {
    "status": {"status": 503, "headers": {"X-Gateway": "g1"}, "retry_after": 1.5, "body": "upstream is down"},
    "delay": {"delay": "20ms"},
    "degrade": {"degrade": {"start": "20ms", "end": "20ms", "over": 1}},
    "drip": {"drip": {"bytes": 40, "every": "5ms"}},
    "content_type": {"content_type": "text/html"},
    "timeout": {"timeout": {"stdout": "partial"}},
    "output": {"output": "lost"},
}
EFFECTS: dict[tuple[str, Phase], Check] = {
    **{("status", phase): says_503 for phase in ("before", "during", "after")},
    **{("delay", phase): answers_whole for phase in ("connect", "before", "during", "after", "body")},
    **{("degrade", phase): answers_whole for phase in ("before", "during", "after")},
    **{("hang", phase): hangs for phase in ("before", "during", "after")},
    ("hang", "connect"): hangs_unread,
    ("hang", "body"): half_then_silence,
    **{("reset", phase): resets for phase in ("connect", "before", "during", "after")},
    ("reset", "body"): half_then_reset,
    **{("close", phase): closes for phase in ("connect", "before", "during", "after")},
    ("truncate", "body"): half_then_close,
    ("drip", "body"): drips,
    ("malformed", "body"): malformed_chunk,
    ("content_type", "body"): wrong_type,
    **{("sandbox_error", phase): fails_itself for phase in ("before", "during", "after")},
    **{("timeout", phase): says_timeout for phase in ("before", "during", "after")},
    ("output", "after"): prints_nothing,
    **{("crash", phase): crashes for phase in ("connect", "before", "during", "after", "body")},
    ("wedge", "before"): wedges,
    ("wedge", "connect"): wedges_unread,
}


def test_every_kind_and_phase_has_an_effect_to_see() -> None:
    assert set(EFFECTS) == {(kind, phase) for kind, action in KINDS.items() for phase in action.phases}


@pytest.mark.parametrize(("kind", "phase"), EFFECTS, ids=[f"{kind}-{phase}" for kind, phase in EFFECTS])
async def test_the_effect_is_seen_at_the_socket(kind: str, phase: Phase) -> None:
    events = Watch()
    rule = {"name": "r", "phase": phase, "what": EXTRA.get(kind, {kind: True})}
    if kind == "crash" and phase == "connect":
        rule["after"] = 1  # the first connection is the one that watches
    async with FakeSandbox(faults=[rule], journal=events.note) as sandbox:
        await EFFECTS[kind, phase](sandbox, events)
        struck = [event for event in events if event["event"] == "strike"]
    assert struck
    assert (struck[0]["rule"], struck[0]["phase"], struck[0]["kind"]) == ("r", phase, kind)
    assert struck[0]["code_ran"] == RAN[phase]
    assert struck[0]["attempt"] == 1
    if phase != "connect":
        assert struck[0]["call"] == "c1"
    assert sandbox.ledger.in_flight == 0
    assert sandbox.ledger.strikes["r"] == len(struck)


async def test_a_run_goes_on_when_its_connection_is_reset_during_it() -> None:
    events = Watch()
    faults = [{"phase": "during", "what": "reset"}]
    async with FakeSandbox(faults=faults, journal=events.note) as sandbox:
        assert await whole(sandbox.port, PROGRAM) == (b"", "reset")
        await events.until(lambda: sandbox.ledger.finished == 1)
    assert sandbox.ledger.calls["c1"].finished == 1


async def test_a_run_that_lost_its_connection_ends_with_the_server() -> None:
    events = Watch()
    before = asyncio.all_tasks()
    sandbox = await FakeSandbox(faults=[{"phase": "during", "what": "reset"}], journal=events.note).start()
    request = run_code("# sfusion:call=long seconds=3600", run_timeout=7200)
    assert await whole(sandbox.port, request) == (b"", "reset")
    await sandbox.stop(grace=0.01)
    assert asyncio.all_tasks() == before
    assert "broken off" in events.kinds()


async def test_a_crash_breaks_off_what_runs() -> None:
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
    assert [event["event"] for event in events] == ["arrived", "started", "crash", "broken off", "unanswered"]


async def test_a_crashed_server_comes_back_by_itself() -> None:
    events = Watch()
    async with FakeSandbox(faults=[{"first": 1, "what": {"crash": "20ms"}}], journal=events.note) as sandbox:
        port = sandbox.port
        assert (await whole(port, PROGRAM))[1] == "reset"
        await events.until(lambda: any(event["event"] == "restart" for event in events))
        assert (await one(port, PROGRAM)).status == 200
        assert sandbox.port == port


async def test_a_wedge_with_a_dead_ping_answers_nobody_until_its_time_is_over() -> None:
    events = Watch()
    faults = [{"first": 1, "what": {"wedge": {"ping": "dead", "seconds": "100ms"}}}]
    async with FakeSandbox(faults=faults, journal=events.note) as sandbox, Raw(sandbox.port) as ping:
        raw = await silence(sandbox, events)
        await ping.send(PING)
        await events.until(lambda: sandbox.ledger.strikes.get("wedge") == 2)
        assert (await ping.answer()).body == b'"pong"'
        assert (await raw.answer()).status == 200
        raw.reset()
    kinds = [event["event"] for event in events]
    assert kinds.index("unwedge") < kinds.index("answered")


async def test_a_hang_of_some_seconds_ends_without_an_answer() -> None:
    for phase in ("connect", "before", "after"):
        async with FakeSandbox(faults=[{"phase": phase, "what": {"hang": "20ms"}}]) as sandbox:
            assert await whole(sandbox.port, PROGRAM) == (b"", "closed"), phase


@pytest.mark.parametrize(
    ("what", "seen"),
    [
        ("null", b'"stdout":null'),
        ("cut", b'"stdout":"hello\\n01234"'),
        ("huge", b'"stdout":"hello\\n0123456789xxxxxxxxxxx'),
        ("not_utf8", b'"stdout":"hello\\n0123456789\xff\xfe\xfa"'),
        ("decode_error", b"\"stdout\":\"[DecodeError] 'utf-8' codec can't decode byte 0xff"),
    ],
)
async def test_output_is_spoiled(what: str, seen: bytes) -> None:
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
async def test_an_answer_is_malformed(what: str, seen: bytes) -> None:
    async with FakeSandbox(faults=[{"what": {"malformed": what}}]) as sandbox:
        got, end = await whole(sandbox.port, PROGRAM)
    assert seen in got
    assert end == "closed"
    if what == "json":
        with pytest.raises(json.JSONDecodeError):
            json.loads(got.partition(b"\r\n\r\n")[2])


async def test_truncation_by_bytes_may_end_in_a_reset_or_in_silence() -> None:
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


async def test_faults_compose() -> None:
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
    assert [event["rule"] for event in events if event["event"] == "strike"] == ["slow", "lost", "html", "slow-body"]


async def test_a_status_after_execution_hides_a_run_that_happened() -> None:
    faults = [{"first_attempts": 2, "phase": "after", "what": {"status": 504}}]
    async with FakeSandbox(faults=faults) as sandbox:
        statuses = [(await one(sandbox.port, PROGRAM)).status for _ in range(3)]
    assert statuses == [504, 504, 200]
    assert sandbox.ledger.executions("c1") == 3, "a client that retries has run the code three times"


async def test_a_refused_request_has_no_phase_after_execution() -> None:
    async with FakeSandbox(faults=[{"phase": "after", "what": {"status": 504}}]) as sandbox:
        assert (await one(sandbox.port, post("/run_code", b"{}"))).status == 422
        assert sandbox.ledger.strikes == {}


async def test_pings_are_spared_unless_named() -> None:
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        assert (await one(sandbox.port, PING)).status == 200
        sandbox.set_faults([{"path": "/v1/*", "what": {"status": 503}}])
        assert (await one(sandbox.port, PING)).status == 503
        assert (await one(sandbox.port, PROGRAM)).status == 200
