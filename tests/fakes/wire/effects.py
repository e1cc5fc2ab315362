"""What a raw client sees of every kind of fault in every phase, with the fake and with the
proxy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sfusion.fakes.faults import Phase
from sfusion.fakes.wire import FakeServer
from tests.fakes.wire.raw import PING, Raw, Watch, one, run_code, whole

PROGRAM = run_code('# sfusion:call=c1 prints="hello\\n" seconds=0.05')
OK = b'{"status":"Success","message":"","compile_result":null,"run_result":{"status":"Finished",'
Check = Callable[[FakeServer, Watch], Awaitable[None]]


async def silence(sandbox: FakeServer, events: Watch) -> Raw:
    """Send a request that hangs: the server has it and sends nothing."""
    raw = await Raw(sandbox.port).__aenter__()
    await raw.send(PROGRAM)
    await events.until(lambda: any(event["event"] == "strike" for event in events))
    assert not raw.reader._buffer  # type: ignore[attr-defined] # what has come and was not read
    return raw


async def hangs(sandbox: FakeServer, events: Watch) -> None:
    raw = await silence(sandbox, events)
    sandbox.clear_faults()
    assert (await one(sandbox.port, PING)).status == 200, "others are served meanwhile"
    raw.reset()
    await events.until(lambda: sandbox.ledger.in_flight == 0)


async def hangs_unread(sandbox: FakeServer, events: Watch) -> None:
    raw = await silence(sandbox, events)
    assert sandbox.ledger.requests == 0
    raw.reset()


async def resets(sandbox: FakeServer, events: Watch) -> None:
    assert await whole(sandbox.port, PROGRAM) == (b"", "reset")


async def closes(sandbox: FakeServer, events: Watch) -> None:
    assert await whole(sandbox.port, PROGRAM) == (b"", "closed")


async def says_503(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.head.startswith(b"HTTP/1.1 503 Service Unavailable\r\ndate: ")
    assert answer.header("retry-after") == "1.5"
    assert answer.header("x-gateway") == "g1"
    assert answer.body == b"upstream is down"


async def answers_whole(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.body.startswith(OK)


async def answers_half_then(sandbox: FakeServer, end: str) -> None:
    got, ended = await whole(sandbox.port, PROGRAM)
    head, _, body = got.partition(b"\r\n\r\n")
    promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
    assert len(body) == promised // 2
    assert ended == end


async def half_then_reset(sandbox: FakeServer, events: Watch) -> None:
    await answers_half_then(sandbox, "reset")


async def half_then_close(sandbox: FakeServer, events: Watch) -> None:
    await answers_half_then(sandbox, "closed")


async def half_then_silence(sandbox: FakeServer, events: Watch) -> None:
    async with Raw(sandbox.port) as raw:
        await raw.send(PROGRAM)
        head = await raw.reader.readuntil(b"\r\n\r\n")
        promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
        await raw.reader.readexactly(promised // 2)
        assert sandbox.ledger.in_flight == 1
    await events.until(lambda: sandbox.ledger.in_flight == 0)


async def drips(sandbox: FakeServer, events: Watch) -> None:
    pieces = []
    async with Raw(sandbox.port) as raw:
        await raw.send(PROGRAM)
        head = await raw.reader.readuntil(b"\r\n\r\n")
        promised = int(head.split(b"content-length: ")[1].split(b"\r")[0])
        while sum(map(len, pieces)) < promised:
            pieces.append(await raw.reader.read(65536))
    assert b"".join(pieces).startswith(OK)
    assert len(pieces) > 2, "it came in pieces"


async def malformed_chunk(sandbox: FakeServer, events: Watch) -> None:
    got, end = await whole(sandbox.port, PROGRAM)
    head, _, body = got.partition(b"\r\n\r\n")
    assert b"transfer-encoding: chunked" in head
    assert b"content-length" not in head
    size, _, rest = body.partition(b"\r\n")
    assert rest[int(size, 16) + 2 :].startswith(b"zz\r\n"), (
        "the size of the second chunk is not a number"
    )
    assert end == "closed"


async def wrong_type(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.header("content-type") == "text/html"
    assert answer.body.startswith(OK)


async def fails_itself(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.status == 200
    assert answer.json["status"] == "SandboxError"
    assert answer.json["run_result"]["stderr"] == answer.json["message"]


async def says_timeout(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, run_code("# sfusion:call=c1 seconds=0.05", run_timeout=0.06))
    result = answer.json["run_result"]
    assert (answer.json["status"], result["status"]) == ("Failed", "TimeLimitExceeded")
    assert (result["return_code"], result["stdout"]) == (None, "partial")


async def prints_nothing(sandbox: FakeServer, events: Watch) -> None:
    answer = await one(sandbox.port, PROGRAM)
    assert answer.json["status"] == "Success"
    assert answer.json["run_result"]["stdout"] == ""


async def crashes(sandbox: FakeServer, events: Watch) -> None:
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


async def wedges(sandbox: FakeServer, events: Watch) -> None:
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


async def wedges_unread(sandbox: FakeServer, events: Watch) -> None:
    await wedges(sandbox, events)


EXTRA: dict[str, Any] = {
    "status": {
        "status": 503,
        "headers": {"X-Gateway": "g1"},
        "retry_after": 1.5,
        "body": "upstream is down",
    },
    "delay": {"delay": "20ms"},
    "degrade": {"degrade": {"start": "20ms", "end": "20ms", "over": 1}},
    "drip": {"drip": {"bytes": 40, "every": "5ms"}},
    "content_type": {"content_type": "text/html"},
    "timeout": {"timeout": {"stdout": "partial"}},
    "output": {"output": "lost"},
}
EFFECTS: dict[tuple[str, Phase], Check] = {
    **{("status", phase): says_503 for phase in ("before", "during", "after")},
    **{
        ("delay", phase): answers_whole
        for phase in ("connect", "before", "during", "after", "body")
    },
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


async def check_effect(
    sandbox: FakeServer, events: Watch, kind: str, phase: Phase, ran: str
) -> None:
    """Check the effect of the rule from ``rule_of``, and its traces in ledger and journal."""
    await EFFECTS[kind, phase](sandbox, events)
    struck = [event for event in events if event["event"] == "strike"]
    assert struck
    assert (struck[0]["rule"], struck[0]["phase"], struck[0]["kind"]) == ("r", phase, kind)
    assert struck[0]["code_ran"] == ran
    assert struck[0]["attempt"] == 1
    if phase != "connect":
        assert struck[0]["call"] == "c1"


def rule_of(kind: str, phase: Phase) -> dict[str, Any]:
    """A rule of this kind that strikes every request."""
    rule = {"name": "r", "phase": phase, "what": EXTRA.get(kind, {kind: True})}
    if kind == "crash" and phase == "connect":
        rule["after"] = 1  # the first connection is the one that observes the crash
    return rule
