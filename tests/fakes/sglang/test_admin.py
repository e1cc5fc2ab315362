"""The admin endpoints show and change a running server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLangServer, Misbehaving, ScriptedPolicy
from tests.fakes.sglang.client import chat, get, post


async def put(url: str, door: str, body: bytes, method: str = "PUT") -> Any:
    return await post(url, f"/__sfusion/{door}", body, method=method)


async def test_faults_can_be_set_and_removed_while_the_server_runs() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="a sentence")) as server:
        response = await put(
            server.url, "faults", b"- {name: busy, what: {status: 503}}\n- {what: {abort: 3}}\n"
        )
        assert [rule["what"] for rule in response.json["faults"]] == [
            [{"status": 503}],
            [{"abort": {"at": 3.0}}],
        ]
        assert (await get(server.url, "/__sfusion/state")).json["faults"] == ["busy", "abort"]
        assert (await chat(server.url)).status == 503
        response = await put(server.url, "faults", json.dumps([{"what": {"abort": 3}}]).encode())
        assert (await chat(server.url)).json["choices"][0]["finish_reason"] == "abort"
        assert (await get(server.url, "/__sfusion/faults")).json["strikes"] == {"abort": 1}
        assert (await put(server.url, "faults", b"", "DELETE")).json["faults"] == []
        assert (await chat(server.url)).json["choices"][0]["finish_reason"] == "stop"


async def test_state_and_ledger_show_what_happened_until_a_reset() -> None:
    async with FakeSGLangServer(
        ScriptedPolicy([], otherwise="hi"), faults=[{"first": 1, "what": {"status": 500}}]
    ) as server:
        assert [(await chat(server.url)).status for _ in range(2)] == [500, 200]
        state = (await get(server.url, "/__sfusion/state")).json
        assert (state["policy"], state["engine"]["finished"]) == ("ScriptedPolicy", 1)
        assert (await get(server.url, "/__sfusion/ledger?calls=0")).json["arrived"] == 2
        await put(server.url, "reset", b"", "POST")
        assert (await get(server.url, "/__sfusion/ledger?calls=0")).json["arrived"] == 0
        assert [(await chat(server.url)).status for _ in range(2)] == [500, 200]


async def test_the_training_step_can_be_changed() -> None:
    async with FakeSGLangServer(Misbehaving(rate=0.0, slope=1.0)) as server:
        assert (await put(server.url, "step", b"7")).json["step"] == 7
        assert server.engine.step == 7


@pytest.mark.parametrize(
    ("door", "body", "method", "status", "why"),
    [
        ("faults", b"- {waht: 3}", "PUT", 422, "waht"),
        ("faults", b"[", "PUT", 422, "expected"),
        ("step", b"seven", "PUT", 422, "a step is a whole number"),
        ("state", b"", "DELETE", 405, "Method Not Allowed"),
        ("stats", b"", "GET", 404, "there are: faults, ledger, metrics, reset, state, step"),
    ],
)
async def test_wrong_requests_are_answered_with_one_sentence(
    door: str, body: bytes, method: str, status: int, why: str
) -> None:
    async with FakeSGLangServer(ScriptedPolicy([])) as server:
        response = await put(server.url, door, body, method)
    assert response.status == status
    assert why in response.json["detail"]
