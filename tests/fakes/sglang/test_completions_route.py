"""The completions route and ``/generate`` beyond the recordings."""

from __future__ import annotations

import json

import pytest

from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy, ScriptedTurn
from tests.fakes.sglang.client import get, post


def saying(text: str = "Hello") -> FakeSGLangServer:
    return FakeSGLangServer(ScriptedPolicy([ScriptedTurn(say=text)]))


async def test_a_completion_has_text_finish_reason_and_usage() -> None:
    async with saying() as server:
        body = (
            await post(
                server.url, "/v1/completions", {"model": "m", "prompt": "Hi", "max_tokens": 3}
            )
        ).json
    assert list(body) == ["id", "object", "created", "model", "choices", "usage", "metadata"]
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {
            "index": 0,
            "text": "Hel",
            "logprobs": None,
            "finish_reason": "length",
            "matched_stop": None,
        }
    ]
    assert body["usage"]["total_tokens"] == 5


async def test_several_prompts_samples_and_echo_are_choices_in_order() -> None:
    async with saying() as server:
        asked = {"prompt": ["a", "b"], "n": 2, "echo": True}
        body = (await post(server.url, "/v1/completions", asked)).json
        by_ids = (
            await post(server.url, "/v1/completions", {"prompt": [72, 105], "echo": True})
        ).json
    assert [choice["text"] for choice in body["choices"]] == [
        "aHello",
        "aHello",
        "bHello",
        "bHello",
    ]
    assert body["usage"]["prompt_tokens"] == 2
    assert by_ids["choices"][0]["text"] == "HiHello"


async def test_streamed_completions_add_up_to_the_whole() -> None:
    async with saying() as server:
        asked = {
            "prompt": "Hi",
            "stream": True,
            "logprobs": 1,
            "stream_options": {"include_usage": True},
        }
        events = (await post(server.url, "/v1/completions", asked)).events
    assert "".join(choice["text"] for event in events for choice in event["choices"]) == "Hello"
    tokens = [
        t for event in events for choice in event["choices"] for t in choice["logprobs"]["tokens"]
    ]
    assert tokens == ["H", "e", "l", "l", "o", "<|im_end|>"]
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["usage"] == {
        "prompt_tokens": 2,
        "total_tokens": 8,
        "completion_tokens": 6,
        "reasoning_tokens": 0,
    }


@pytest.mark.parametrize(
    ("body", "type", "why"),
    [
        ({"prompt": ""}, "BadRequestError", "Prompt cannot be empty"),
        ({"prompt": ["", ""]}, "BadRequestError", "Prompt cannot be empty"),
        ({"prompt": "x", "max_tokens": 0}, "Bad Request", "max_tokens must be positive"),
        ({}, "Bad Request", "Field required"),
        ({"prompt": "x" * 40000}, "BadRequestError", "is longer than the model's context length"),
    ],
)
async def test_a_refused_completion_gets_the_flat_error_of_sglang(
    body: dict[str, object], type: str, why: str
) -> None:
    async with saying() as server:
        for stream in (False, True):
            response = await post(server.url, "/v1/completions", body | {"stream": stream})
            assert response.status == 400
            assert response.json["type"] == type
            assert why in response.json["message"]


async def test_generate_takes_batches_put_and_logprobs() -> None:
    async with saying() as server:
        batch = (await post(server.url, "/generate", {"text": ["a", "b"]}, method="PUT")).json
        assert [answer["text"] for answer in batch] == ["Hello", "Hello"]
        one = (
            await post(server.url, "/generate", {"input_ids": [72], "return_logprob": True})
        ).json
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
        assert list(card) == [
            "id",
            "object",
            "created",
            "owned_by",
            "root",
            "parent",
            "max_model_len",
        ]
        assert (await get(server.url, "/model_info")).json == (
            await get(server.url, "/get_model_info")
        ).json
        info = (await get(server.url, "/get_server_info")).json
        assert (await get(server.url, "/server_info")).json == info
    assert f"http://{info['host']}:{info['port']}" == server.url
    assert (info["served_model_name"], info["tool_call_parser"], info["status"]) == (
        "org/name",
        "qwen",
        "ready",
    )
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
            server.url,
            "/parse_function_call",
            {"text": "no call", "tools": [], "tool_call_parser": "qwen"},
        )
    assert json.loads(response.text) == {"normal_text": "no call", "calls": []}
