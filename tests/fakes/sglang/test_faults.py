"""Faults at the socket and in the engine, which hit what they should and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.faults import FaultError
from sfusion.fakes.sglang import (
    Ask,
    EngineDown,
    EngineRefused,
    FakeSGLang,
    FakeSGLangServer,
    Latency,
    Reply,
    ScriptedPolicy,
)
from sfusion.fakes.sglang.faults import engine_rules
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from tests.fakes.sglang.client import chat, get, post

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def serving(*rules: Any, engine: FakeSGLang | None = None, seed: int = 0) -> FakeSGLangServer:
    policy = engine or ScriptedPolicy([], otherwise="a sentence of some length")
    return FakeSGLangServer(policy, faults=rules, seed=seed)


async def test_the_first_n_requests_are_refused_and_the_next_served() -> None:
    async with serving({"first": 2, "what": {"status": 503, "retry_after": 1}}) as server:
        assert [(await chat(server.url)).status for _ in range(3)] == [503, 503, 200]


async def test_faults_apply_to_generation_but_not_to_the_health_check() -> None:
    async with serving({"what": {"status": 500}}) as server:
        assert (await chat(server.url)).status == 500
        assert (await post(server.url, "/generate", {"text": "x"})).status == 500
        assert (await get(server.url, "/health")).status == 200
        assert (await get(server.url, "/v1/models")).status == 200


async def test_a_reset_fault_resets_the_connection() -> None:
    async with serving({"what": "reset"}) as server:
        with pytest.raises(aiohttp.ClientConnectionError):
            await chat(server.url)


async def test_a_stream_can_be_cut_off() -> None:
    async with serving({"what": {"truncate": 400}}) as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await chat(server.url, stream=True)


TEXT = "one two three four five six seven eight nine ten"


@pytest.mark.parametrize("at", [0, 0.5, 0.9])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", ASKED),
        ("/v1/chat/completions", ASKED | {"n": 2}),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 99}),
        ("/generate", {"text": "hi"}),
    ],
)
async def test_a_share_of_a_stream_is_one_of_its_text_and_ends_between_events(
    path: str, body: Any, at: float
) -> None:
    got = b""
    rule = {"what": {"truncate": {"at": at, "then": "close"}}}
    engine = FakeSGLang(ScriptedPolicy([], otherwise=TEXT), stream_interval=2)
    async with (
        serving(rule, engine=engine) as server,
        aiohttp.ClientSession() as session,
        session.post(server.url + path, json=body | {"stream": True}) as answer,
    ):
        with contextlib.suppress(aiohttp.ClientPayloadError):
            async for data in answer.content.iter_any():
                got += data
            pytest.fail("the stream came to its end")
    events = [json.loads(event.removeprefix("data: ")) for event in got.decode().split("\n\n")[:-1]]
    assert got == b"" or got.endswith(b"\n\n"), "no event is cut"
    shown = 0
    for event in events:
        if path == "/generate":
            shown = len(event["text"])
        elif "chat" in path:
            shown += len(event["choices"][0]["delta"].get("content") or "")
        else:
            shown += len(event["choices"][0]["text"])
    total = len(TEXT) * body.get("n", 1)
    assert at * total <= shown <= at * total + 2 * body.get("n", 1)


async def test_a_crash_stops_server_and_engine_and_a_restart_recovers_both() -> None:
    async with serving({"first": 1, "what": {"crash": True}}) as server:
        with pytest.raises(aiohttp.ClientConnectionError):
            await chat(server.url)
        assert not server.engine.up
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(server.url, "/health")
        await server.server.restart()
        assert (await get(server.url, "/health")).status == 200
        assert (await chat(server.url)).status == 200
        assert server.engine.snapshot().restarts == 1


async def test_an_abort_fault_keeps_part_of_the_tokens() -> None:
    async with serving({"first": 1, "what": {"abort": 0.5}}) as server:
        cut = (await chat(server.url)).json["choices"][0]
        whole = (await chat(server.url)).json["choices"][0]
    assert cut["finish_reason"] == "abort"
    assert whole["finish_reason"] == "stop"
    assert whole["message"]["content"].startswith(cut["message"]["content"])
    assert 0 < len(cut["message"]["content"]) < len(whole["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_abort_fault_with_a_status_is_an_error(stream: bool) -> None:
    rule = {"what": {"abort": {"at": 8, "status": 400, "message": "The request is too long"}}}
    async with serving(rule) as server:
        response = await chat(server.url, stream=stream)
    if stream:
        assert response.status == 200
        assert response.events[-1] == {
            "error": {
                "object": "error",
                "message": "The request is too long",
                "type": "BAD_REQUEST",
                "param": None,
                "code": 400,
            }
        }
    else:
        assert (response.status, response.json["type"]) == (400, "BadRequestError")


async def test_abort_request_ends_a_running_stream_at_the_socket() -> None:
    engine = FakeSGLang(
        ScriptedPolicy([], otherwise="x" * 999), latency=Latency(per_token=0.002), stream_interval=1
    )
    async with (
        FakeSGLangServer(engine) as server,
        aiohttp.ClientSession() as session,
        session.post(
            f"{server.url}/v1/chat/completions", json=ASKED | {"stream": True, "rid": "mine"}
        ) as answer,
    ):
        lines = answer.content
        await lines.readuntil(b"\n\n")
        assert (await post(server.url, "/abort_request", {"rid": "mine"})).status == 200
        rest = (await lines.read()).decode().split("\n\n")
    finish = json.loads(rest[-3].removeprefix("data: "))
    assert finish["choices"][0]["finish_reason"] == "abort"
    assert rest[-2] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnected_client_ends_its_generation(stream: bool) -> None:
    asked = asyncio.Event()

    class Slow:
        def reply(self, ask: Ask) -> Reply:
            asked.set()
            return Reply("x" * 999)

    engine = FakeSGLang(Slow(), latency=Latency(per_token=3600.0), stream_interval=1)
    async with FakeSGLangServer(engine) as server:
        task = asyncio.create_task(chat(server.url, stream=stream))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await engine.flush_when_idle(30)
        assert engine.snapshot().aborted == 1


def test_faults_also_apply_to_the_engine_object() -> None:
    async def struck(*rules: Any) -> tuple[list[str], float]:
        engine = FakeSGLang(ScriptedPolicy([], otherwise="ok"), faults=engine_rules(list(rules)))
        results = []
        for _ in range(3):
            try:
                results.append((await engine.async_generate("hi"))["text"])
            except (EngineRefused, EngineDown) as error:
                results.append(type(error).__name__)
        return results, asyncio.get_running_loop().time()

    assert run_virtually(struck({"first": 1, "what": {"status": 503}})) == (
        ["EngineRefused", "ok", "ok"],
        0.0,
    )
    assert run_virtually(struck({"every": 2, "what": {"delay": 2.0}})) == (["ok", "ok", "ok"], 2.0)
    assert run_virtually(struck({"first": 1, "what": {"hang": 60}})) == (
        ["EngineDown", "ok", "ok"],
        60.0,
    )
    assert run_virtually(struck({"first": 1, "what": "crash"}))[0] == ["EngineDown"] * 3


def test_probabilistic_faults_hit_the_same_questions_in_any_order() -> None:
    async def struck(questions: list[str]) -> set[str]:
        rules = engine_rules([{"probability": 0.5, "what": {"status": 500}}])
        engine = FakeSGLang(ScriptedPolicy([], otherwise="ok"), faults=rules, seed=5)
        results = await asyncio.gather(
            *map(engine.async_generate, questions), return_exceptions=True
        )
        return {
            question
            for question, result in zip(questions, results, strict=True)
            if isinstance(result, EngineRefused)
        }

    questions = [f"question {number}" for number in range(40)]
    hit = run_virtually(struck(questions))
    assert 5 < len(hit) < 35
    assert run_virtually(struck(questions[::-1])) == hit
    assert run_virtually(struck(questions[10:])) == hit & set(questions[10:])


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        ({"what": {"sandbox_error": True}}, "sandbox_error applies only to sandboxes"),
        ({"what": {"abort": {"after": 3}}}, "after"),
        ({"waht": {"abort": 3}}, "waht"),
    ],
)
def test_wrong_rules_are_refused(rule: Any, why: str) -> None:
    with pytest.raises(FaultError, match=why):
        engine_rules([rule])


def test_an_engine_object_refuses_faults_of_the_connection() -> None:
    with pytest.raises(FaultError, match="give the rule to FakeSGLangServer"):
        FakeSGLang(ScriptedPolicy([]), faults=engine_rules([{"what": {"truncate": 0.5}}]))
    FakeSGLangServer(ScriptedPolicy([]), faults=[{"what": {"truncate": 0.5}}])
