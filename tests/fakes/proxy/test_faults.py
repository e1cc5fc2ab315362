"""Faults in the proxy: the same rules strike the same calls in the same way as in the fake, for any
upstream."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from sfusion.fakes.faults import Phase
from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.proxy.app import unpacked
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer
from sfusion.fakes.wire import Answer
from tests.fakes.proxy.scripted_upstream import OK, UpstreamConnection, always, scripted_upstream
from tests.fakes.wire.effects import EFFECTS, PROGRAM, check_effect, rule_of
from tests.fakes.wire.raw import PATIENCE, PING, Raw, Watch, get, one, post, run_code, whole

# Whether the code has run, as far as a proxy can know.
RAN = {"connect": "no", "before": "no", "during": "unknown", "after": "unknown", "body": "unknown"}


@pytest.mark.parametrize(
    ("kind", "phase"), EFFECTS, ids=[f"{kind}-{phase}" for kind, phase in EFFECTS]
)
async def test_fault_has_its_effect_at_the_socket(kind: str, phase: Phase) -> None:
    events = Watch()
    async with FakeSandbox() as sandbox:
        async with FaultProxy(
            sandbox.url, faults=[rule_of(kind, phase)], journal=events.note
        ) as proxy:
            await check_effect(proxy, events, kind, phase, RAN[phase])
            if phase not in ("connect", "before"):
                assert proxy.ledger.calls["c1"].forwarded == 1
        assert proxy.ledger.in_flight == 0
        assert proxy.ledger.strikes["r"] == sum(event["event"] == "strike" for event in events)
        if phase in ("connect", "before") and kind not in ("delay", "degrade", "wedge"):
            assert sandbox.ledger.arrived == 0, (
                "a request struck before it is forwarded never reaches the server"
            )


RULES = [
    {"name": "often", "probability": 0.4, "what": {"status": 503}},
    {"name": "late", "probability": 0.3, "phase": "after", "what": {"status": 504}},
    {"name": "bash", "language": "bash", "what": {"sandbox_error": "no bash here"}},
    {"name": "numpy", "code": "import numpy", "probability": 0.5, "what": {"output": "lost"}},
    {"name": "cell", "path": "/run_jupyter", "every": 3, "what": {"truncate": 0.5}},
    {"name": "some", "call": "c1*", "first_attempts": 1, "what": {"status": 429, "retry_after": 2}},
]


def load() -> list[bytes]:
    """Requests of all sorts."""
    requests = []
    for number in range(40):
        code = f"# sfusion:call=c{number}\n" + ("import numpy" if number % 4 == 0 else "pass")
        requests += [run_code(code)] * 2
        requests.append(run_code(f"print({number})"))
        requests.append(post("/run_code", json.dumps({"code": code, "language": "bash"}).encode()))
        requests.append(post("/run_jupyter", json.dumps({"cells": [code, "print(1)"]}).encode()))
        requests.append(post("/submit", b"{}"))
    return requests


async def test_same_rules_and_seed_strike_the_same_calls_as_in_the_fake() -> None:
    at_fake, at_proxy = Watch(), Watch()
    async with (
        FakeSandbox(faults=RULES, seed=7, journal=at_fake.note) as fake,
        FakeSandbox() as sandbox,
        FaultProxy(sandbox.url, faults=RULES, seed=7, journal=at_proxy.note) as proxy,
    ):
        for request in load():
            await whole(fake.port, request.replace(b"host:", b"connection: close\r\nhost:"))
            await whole(proxy.port, request.replace(b"host:", b"connection: close\r\nhost:"))

    def strikes(events: Watch) -> list[tuple[object, ...]]:
        keys = ("call", "attempt", "rule", "phase", "kind")
        return [tuple(event[key] for key in keys) for event in events if event["event"] == "strike"]

    assert len(strikes(at_fake)) > 50
    assert strikes(at_proxy) == strikes(at_fake)
    assert proxy.ledger.statuses == fake.ledger.statuses
    assert proxy.ledger.strikes == fake.ledger.strikes


async def test_another_seed_strikes_other_calls() -> None:
    statuses = []
    async with FakeSandbox() as sandbox:
        for seed in (1, 1, 2):
            rules = [{"name": "r", "probability": 0.5, "what": {"status": 503}}]
            async with FaultProxy(sandbox.url, faults=rules, seed=seed) as proxy:
                statuses.append(
                    [
                        (await one(proxy.port, run_code(f"# sfusion:call=c{n}"))).status
                        for n in range(20)
                    ]
                )
    assert statuses[0] == statuses[1] != statuses[2]


async def test_program_keeps_running_upstream_after_a_reset_during_it() -> None:
    events = Watch()
    rules = [{"phase": "during", "what": "reset"}]
    async with (
        FakeSandbox(journal=events.note) as sandbox,
        FaultProxy(sandbox.url, faults=rules, journal=events.note) as proxy,
    ):
        assert await whole(proxy.port, PROGRAM) == (b"", "reset")
        await events.until(lambda: sandbox.ledger.finished == 1 and proxy.ledger.replied == 1)


async def test_connection_of_a_suppressed_answer_is_released() -> None:
    left = asyncio.Event()
    go_on = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await go_on.wait()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
        await peer.gone()
        left.set()

    for phase, what, status in (
        ("during", {"status": 504}, 504),
        ("after", {"status": 504}, 504),
        ("after", "sandbox_error", 200),
    ):
        left.clear()
        go_on.clear()
        rule = {"phase": phase, "what": what}
        async with (
            scripted_upstream(serve) as server,
            FaultProxy(server.url, faults=[rule]) as proxy,
            Raw(proxy.port) as raw,
        ):
            if phase == "after":
                go_on.set()
            assert (await raw.ask(post("/x", b"{}"))).status == status
            go_on.set()
            async with asyncio.timeout(PATIENCE):
                await left.wait()
            assert (await raw.ask(post("/x", b"{}"))).status == status, (
                "the client stayed connected"
            )


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize(
    ("what", "expected", "end"),
    [
        ({"truncate": 0.5}, b"0123", "closed"),
        ({"truncate": {"at": 5, "then": "reset"}}, b"01234", "reset"),
        ({"reset": {"at": 0.25}}, b"01", "reset"),
        ({"truncate": 0}, b"", "closed"),
    ],
    ids=["half", "bytes", "reset", "nothing"],
)
async def test_answer_is_cut_at_the_configured_place_for_every_framing(
    framing: str, what: object, expected: bytes, end: str
) -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        if framing == "length":
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n")
            for piece in (b"0", b"123", b"4567"):
                await peer.send(piece)
        else:
            await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n0\r\n")
            await peer.send(b"3\r\n123\r\n4\r\n4567\r\n0\r\n\r\n")
        await peer.gone()

    phase = {"phase": "body"} if "reset" in str(what) and "truncate" not in str(what) else {}
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, faults=[{**phase, "what": what}]) as proxy,
    ):
        got, ended = await whole(proxy.port, post("/x", b"{}"))
    head, _, body = got.partition(b"\r\n\r\n")
    if b"chunked" in head:
        assert what == {"truncate": {"at": 5, "then": "reset"}}, (
            "cutting at a share needs the whole body"
        )
        body = b"".join(body.split(b"\r\n")[1::2])
    assert (body, ended) == (expected, end)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [(b"gzip", gzip.compress), (b"x-gzip", gzip.compress), (b"Deflate", zlib.compress)],
    ids=["gzip", "x-gzip", "deflate"],
)
async def test_compressed_output_is_decompressed_before_it_is_changed(
    encoding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    answer = {"status": "Success", "run_result": {"stdout": "hello", "stderr": ""}}
    packed = pack(json.dumps(answer).encode())
    sent = (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: %b\r\nContent-Length: %d\r\nx: y\r\n\r\n"
        % (encoding, len(packed))
        + packed
    )
    rules = [{"what": {"output": "lost"}}]
    async with (
        scripted_upstream(always(sent)) as server,
        FaultProxy(server.url, faults=rules) as proxy,
    ):
        got, _ = await whole(
            proxy.port, run_code().replace(b"host:", b"connection: close\r\nhost:")
        )
    head, _, body = got.partition(b"\r\n\r\n")
    assert head == b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nx: y\r\nconnection: close" % len(body)
    assert json.loads(body) == {"status": "Success", "run_result": {"stdout": "", "stderr": ""}}


def test_an_answer_that_would_unpack_to_gigabytes_is_passed_on_as_it_is() -> None:
    packer = zlib.compressobj(9)
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(65)) + packer.flush()
    answer = Answer(body=bomb, headers=[("content-encoding", "deflate")])
    assert unpacked(answer) is answer


@pytest.mark.parametrize("parts", [[b""], [b"first,", b"second"], [b"", b"second"]])
def test_all_members_of_a_gzip_file_are_unpacked(parts: list[bytes]) -> None:
    """What followed the first was lost."""
    packed = b"".join(map(gzip.compress, parts))
    answer = unpacked(Answer(body=packed, headers=[("content-encoding", "gzip")]))
    assert (answer.body, answer.headers) == (b"".join(parts), [])


async def test_wrong_content_type_replaces_the_right_one() -> None:
    sent = b"HTTP/1.1 200 OK\r\na: 1\r\nContent-Type: text/plain\r\ncontent-length: 2\r\n\r\nok"
    rules = [{"what": {"content_type": "text/html"}}]
    async with (
        scripted_upstream(always(sent)) as server,
        FaultProxy(server.url, faults=rules) as proxy,
    ):
        answer = await one(proxy.port, post("/x", b"{}"))
    assert answer.head + answer.body == sent.replace(b"text/plain", b"text/html")


async def test_dripping_stream_arrives_complete() -> None:
    sent = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n"
    rule = {"what": {"drip": {"bytes": 2, "every": "1ms"}}}
    async with (
        scripted_upstream(always(sent)) as server,
        FaultProxy(server.url, faults=[rule]) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(post("/x", b"{}"))
        got = await raw.reader.readuntil(b"0\r\n\r\n")
    assert got.partition(b"\r\n\r\n")[2] == b"2\r\nab\r\n2\r\ncd\r\n2\r\nef\r\n0\r\n\r\n"


async def test_phase_after_is_skipped_when_the_upstream_gives_no_answer() -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()

    events = Watch()
    rule = {"name": "r", "phase": "after", "what": {"status": 504}}
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, faults=[rule], journal=events.note) as proxy,
    ):
        assert (await one(proxy.port, post("/x", b"{}"))).status == 502
    assert "strike" not in events.kinds()


async def test_answer_that_breaks_while_being_buffered_becomes_502() -> None:
    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")

    for what in ({"output": "lost"}, {"truncate": 0.5}, {"malformed": "json"}):
        async with (
            scripted_upstream(serve) as server,
            FaultProxy(server.url, faults=[{"what": what}]) as proxy,
        ):
            answer = await one(proxy.port, run_code())
        assert answer.status == 502
        assert answer.json["detail"].endswith("broke off in the middle of its answer")


async def test_posts_to_other_paths_are_work_identified_by_mark_or_body() -> None:
    rules = [{"code": "needle", "what": {"status": 503}}]
    async with (
        scripted_upstream(always(OK)) as server,
        FaultProxy(server.url, faults=rules) as proxy,
    ):
        assert (
            await one(proxy.port, post("/execute", b'{"x": "# sfusion:call=m1"}'))
        ).status == 200
        assert (await one(proxy.port, post("/execute", b"needle in hay"))).status == 503
        assert (await one(proxy.port, get("/needle"))).status == 200
    calls = list(proxy.ledger.calls)
    assert calls[0] == "m1"
    assert calls[1].startswith("body-")
    assert len(calls) == 2, "a GET is not work"


async def test_server_model_limits_requests_at_the_proxy() -> None:
    events = Watch()
    async with (
        FakeSandbox(journal=events.note) as sandbox,
        FaultProxy(sandbox.url, model={"kind": "quota", "in_flight": 1}) as proxy,
    ):
        async with Raw(proxy.port) as raw:
            sandbox.wedge()
            await raw.send(run_code("# sfusion:call=a"))
            await events.until(lambda: sandbox.ledger.strikes.get("wedge") == 1)
            away = await one(proxy.port, run_code("# sfusion:call=b"))
            assert (away.status, away.header("retry-after")) == (429, "1")
            assert (await one(proxy.port, PING)).status == 200
            sandbox.unwedge()
            assert (await raw.answer()).status == 200
        assert (await one(proxy.port, run_code("# sfusion:call=b"))).status == 200
    assert proxy.ledger.calls["b"].statuses == [429, 200]
    assert proxy.ledger.calls["b"].forwarded == 1


async def test_stream_of_an_engine_is_struck_in_its_body() -> None:
    question = {
        "model": "m",
        "messages": [{"role": "user", "content": "Say something."}],
        "stream": True,
    }
    request = post("/v1/chat/completions", json.dumps(question).encode())
    async with FakeSGLangServer() as engine, FaultProxy(engine.url) as proxy:
        got, _ = await whole(proxy.port, request.replace(b"host:", b"connection: close\r\nhost:"))
        assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        proxy.set_faults([{"what": {"truncate": 0.5}}])
        cut, end = await whole(proxy.port, request)
    assert end == "closed"
    assert b"data: " in cut
    assert b"[DONE]" not in cut


async def test_answer_of_known_length_streams_until_it_is_cut() -> None:
    go_on = asyncio.Event()

    async def serve(peer: UpstreamConnection) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n01")
        await go_on.wait()
        await peer.send(b"234567")
        await peer.gone()

    rules = [{"what": {"truncate": 0.5}}]
    async with (
        scripted_upstream(serve) as server,
        FaultProxy(server.url, faults=rules) as proxy,
        Raw(proxy.port) as raw,
    ):
        await raw.send(post("/x", b"{}"))
        async with asyncio.timeout(PATIENCE):
            assert (await raw.reader.readuntil(b"01")).endswith(b"content-length: 8\r\n\r\n01")
        go_on.set()
        assert await raw.rest() == (b"23", "closed")


async def test_malformed_chunk_removes_content_length_in_any_case() -> None:
    sent = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nX: y\r\n\r\nabcd"
    async with (
        scripted_upstream(always(sent)) as server,
        FaultProxy(server.url, faults=[{"what": "malformed"}]) as proxy,
    ):
        got, _ = await whole(proxy.port, post("/x", b"{}"))
    assert got.startswith(
        b"HTTP/1.1 200 OK\r\nX: y\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\nzz\r\n"
    )


@pytest.mark.parametrize("given", ["null", '"soon"', "NaN", "[1]"])
async def test_timeout_fault_answers_a_request_whose_run_timeout_is_not_a_number(
    given: str,
) -> None:
    faults = [{"phase": "before", "what": "timeout"}]
    async with FakeSandbox() as sandbox, FaultProxy(sandbox.url, faults=faults) as proxy:
        body = f'{{"code": "x", "language": "python", "run_timeout": {given}}}'.encode()
        answer = await one(proxy.port, post("/run_code", body))
    assert answer.status == 200
    assert answer.json["run_result"]["status"] == "TimeLimitExceeded"
