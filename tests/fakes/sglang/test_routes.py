"""``/generate`` and the routes around it, beyond the recordings."""

from __future__ import annotations

import json

from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy, ScriptedTurn
from tests.fakes.sglang.client import get, post


def saying(text: str = "Hello") -> FakeSGLangServer:
    return FakeSGLangServer(ScriptedPolicy([ScriptedTurn(say=text)]))


async def test_generate_takes_batches_put_and_logprobs() -> None:
    async with saying() as server:
        batch = (await post(server.url, "/generate", {"text": ["a", "b"]}, method="PUT")).json
        assert [answer["text"] for answer in batch] == ["Hello", "Hello"]
        one = (await post(server.url, "/generate", {"input_ids": [72], "return_logprob": True})).json
        assert len(one["meta_info"]["output_token_logprobs"]) == 6
        stream = (await post(server.url, "/generate", {"text": ["a", "b"], "stream": True})).events
        assert {event["index"] for event in stream} == {0, 1}


async def test_generate_refuses_with_its_own_error_object() -> None:
    async with saying() as server:
        response = await post(server.url, "/generate", {})
        assert (response.status, response.json) == (
            400,
            {"error": {"message": "Either text, input_ids or input_embeds should be provided."}},
        )
        response = await post(server.url, "/generate", {"text": 5})
        assert response.status == 400
        assert response.json["type"] == "Bad Request"


async def test_models_are_listed_and_unknown_ones_are_404() -> None:
    async with FakeSGLangServer(ScriptedPolicy([]), model="org/name") as server:
        card = (await get(server.url, "/v1/models/org/name")).json
        assert (await get(server.url, "/v1/models")).json == {"object": "list", "data": [card]}
        assert list(card) == ["id", "object", "created", "owned_by", "root", "parent", "max_model_len"]
        assert (await get(server.url, "/model_info")).json == (await get(server.url, "/get_model_info")).json
        info = (await get(server.url, "/get_server_info")).json
        assert (await get(server.url, "/server_info")).json == info
    assert f"http://{info['host']}:{info['port']}" == server.url
    assert (info["served_model_name"], info["tool_call_parser"], info["status"]) == ("org/name", "qwen", "ready")
    assert info["context_length"] == info["max_req_input_len"] + 1 == server.engine.context_length
    assert info["internal_states"][0]["num_running_reqs"] == 0


async def test_pause_holds_requests_until_continue() -> None:
    async with saying() as server:
        response = await post(server.url, "/pause_generation", {})
        assert response.json == {"message": "Generation paused successfully.", "status": "ok"}
        assert server.engine.snapshot().paused
        await post(server.url, "/continue_generation", {})
        assert (await post(server.url, "/generate", {"text": "x"})).json["text"] == "Hello"


async def test_parse_function_call_returns_text_without_calls_unchanged() -> None:
    async with saying() as server:
        response = await post(
            server.url, "/parse_function_call", {"text": "no call", "tools": [], "tool_call_parser": "qwen"}
        )
    assert json.loads(response.text) == {"normal_text": "no call", "calls": []}
