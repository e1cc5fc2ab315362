"""What goes wrong on purpose, at the socket and in the engine, and that what was not meant to be struck is not."""

from __future__ import annotations

import asyncio
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
from sfusion.harness.worlds.virtual_time import run_virtually
from tests.fakes.sglang.client import chat, get, post

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def serving(*rules: Any, engine: FakeSGLang | None = None, seed: int = 0) -> FakeSGLangServer:
    policy = engine or ScriptedPolicy([], otherwise="a sentence of some length")
    return FakeSGLangServer(policy, faults=rules, seed=seed)


async def test_first_n_are_refused_and_the_next_served() -> None:
    async with serving({"first": 2, "what": {"status": 503, "retry_after": 1}}) as server:
        assert [(await chat(server.url)).status for _ in range(3)] == [503, 503, 200]


async def test_faults_concern_generating_and_not_the_health_check() -> None:
    async with serving({"what": {"status": 500}}) as server:
        assert (await chat(server.url)).status == 500
        assert (await post(server.url, "/generate", {"text": "x"})).status == 500
        assert (await get(server.url, "/health")).status == 200
        assert (await get(server.url, "/v1/models")).status == 200


async def test_a_reset_connection_is_reset() -> None:
    async with serving({"what": "reset"}) as server:
        with pytest.raises(aiohttp.ClientConnectionError):
            await chat(server.url)


async def test_a_stream_can_break_off_in_its_middle() -> None:
    async with serving({"what": {"truncate": 400}}) as server:
        with pytest.raises(aiohttp.ClientPayloadError):
            await chat(server.url, stream=True)


async def test_a_crash_takes_the_engine_along_and_a_restart_brings_both_back() -> None:
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


async def test_an_abort_keeps_half_of_what_was_said() -> None:
    async with serving({"first": 1, "what": {"abort": 0.5}}) as server:
        cut = (await chat(server.url)).json["choices"][0]
        whole = (await chat(server.url)).json["choices"][0]
    assert cut["finish_reason"] == "abort"
    assert whole["finish_reason"] == "stop"
    assert whole["message"]["content"].startswith(cut["message"]["content"])
    assert 0 < len(cut["message"]["content"]) < len(whole["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
async def test_an_abort_with_a_status_is_an_error(stream: bool) -> None:
    rule = {"what": {"abort": {"at": 8, "status": 400, "message": "The request is too long"}}}
    async with serving(rule) as server:
        told = await chat(server.url, stream=stream)
    if stream:
        assert told.status == 200
        assert told.events[-1] == {
            "error": {
                "object": "error",
                "message": "The request is too long",
                "type": "BAD_REQUEST",
                "param": None,
                "code": 400,
            }
        }
    else:
        assert (told.status, told.json["type"]) == (400, "BadRequestError")


async def test_abort_request_ends_a_running_stream_at_the_socket() -> None:
    engine = FakeSGLang(ScriptedPolicy([], otherwise="x" * 999), latency=Latency(per_token=0.002), stream_interval=1)
    async with (
        FakeSGLangServer(engine) as server,
        aiohttp.ClientSession() as session,
        session.post(f"{server.url}/v1/chat/completions", json=ASKED | {"stream": True, "rid": "mine"}) as answer,
    ):
        lines = answer.content
        await lines.readuntil(b"\n\n")
        assert (await post(server.url, "/abort_request", {"rid": "mine"})).status == 200
        rest = (await lines.read()).decode().split("\n\n")
    finish = json.loads(rest[-3].removeprefix("data: "))
    assert finish["choices"][0]["finish_reason"] == "abort"
    assert rest[-2] == "data: [DONE]"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_ends_its_generation(stream: bool) -> None:
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


def test_engine_faults_strike_the_object_too() -> None:
    async def struck(*rules: Any) -> tuple[list[str], float]:
        engine = FakeSGLang(ScriptedPolicy([], otherwise="ok"), faults=engine_rules(list(rules)))
        said = []
        for _ in range(3):
            try:
                said.append((await engine.async_generate("hi"))["text"])
            except (EngineRefused, EngineDown) as error:
                said.append(type(error).__name__)
        return said, asyncio.get_running_loop().time()

    assert run_virtually(struck({"first": 1, "what": {"status": 503}})) == (["EngineRefused", "ok", "ok"], 0.0)
    assert run_virtually(struck({"every": 2, "what": {"delay": 2.0}})) == (["ok", "ok", "ok"], 2.0)
    assert run_virtually(struck({"first": 1, "what": {"hang": 60}})) == (["EngineDown", "ok", "ok"], 60.0)
    assert run_virtually(struck({"first": 1, "what": "crash"}))[0] == ["EngineDown"] * 3


def test_chance_strikes_the_same_questions_whatever_came_before() -> None:
    async def struck(questions: list[str]) -> set[str]:
        rules = engine_rules([{"probability": 0.5, "what": {"status": 500}}])
        engine = FakeSGLang(ScriptedPolicy([], otherwise="ok"), faults=rules, seed=5)
        results = await asyncio.gather(*map(engine.async_generate, questions), return_exceptions=True)
        return {
            question for question, result in zip(questions, results, strict=True) if isinstance(result, EngineRefused)
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


def test_an_engine_object_refuses_what_only_a_socket_can_suffer() -> None:
    with pytest.raises(FaultError, match="give the rule to FakeSGLangServer"):
        FakeSGLang(ScriptedPolicy([]), faults=engine_rules([{"what": {"truncate": 0.5}}]))
    FakeSGLangServer(ScriptedPolicy([]), faults=[{"what": {"truncate": 0.5}}])
