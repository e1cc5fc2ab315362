"""The routes that trainers call beside generation, and a clear answer from those that the fake does
not have."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLang, FakeSGLangServer, Latency, ScriptedPolicy
from tests.fakes.sglang.client import chat, get, post
from tests.sfusion_tools.sandbox.helpers import until

SLOW = Latency(per_token=3600.0)
LONE = "\ud800"
"""Half of a pair of surrogates, alone."""


async def test_the_routes_of_trainers_answer_what_a_client_needs() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        url = server.url
        assert (
            await post(url, "/release_memory_occupation", {"tags": ["kv_cache", "weights"]})
        ).status == 200
        assert (await post(url, "/resume_memory_occupation", {"tags": ["weights"]})).text == "null"
        refused = await chat(url)
        assert (refused.status, "kv_cache was released" in refused.text) == (503, True)
        assert (await post(url, "/resume_memory_occupation", b"")).status == 200
        assert (await chat(url)).status == 200
        for how in ("from_disk", "from_tensor", "from_distributed"):
            answer = await post(
                url, f"/update_weights_{how}", {"weight_version": how, "names": ["w"]}
            )
            assert answer.json["success"] is True
        assert (await get(url, "/model_info")).json["weight_version"] == "from_distributed"
        assert (await post(url, "/init_weights_update_group", {"world_size": 2})).json[
            "success"
        ] is True
        text = "né <|im_end|>"
        tokens = (await post(url, "/tokenize", {"prompt": text})).json
        assert (tokens["count"], tokens["max_model_len"]) == (
            len(tokens["tokens"]),
            server.engine.context_length,
        )
        back = {"tokens": tokens["tokens"], "skip_special_tokens": False}
        assert (await post(url, "/detokenize", back)).json == {"text": text}
        assert (await post(url, "/tokenize", {"prompt": ["a", "bc"]})).json["count"] == [1, 2]
        assert (
            await post(url, "/tokenize", {"messages": [{"role": "user", "content": "x"}]})
        ).json["count"] > 10
        assert (await post(url, "/tokenize", {})).status == 400
        assert (await get(url, "/get_load")).json[0]["num_reqs"] == 0
        assert "sglang:num_requests_total 1.0" in (await get(url, "/metrics")).text
        split = {"text": "<think>a</think>b", "reasoning_parser": "qwen3"}
        assert (await post(url, "/separate_reasoning", split)).json == {
            "reasoning_text": "a",
            "text": "b",
        }
        assert (
            await post(url, "/separate_reasoning", split | {"reasoning_parser": "qwen33"})
        ).status == 400


async def test_resuming_without_tags_resumes_all_memory() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        url = server.url
        every = {"tags": ["kv_cache", "weights", "cuda_graph"]}
        for released in (every, {}):
            await post(url, "/release_memory_occupation", released)
            refused = await chat(url)
            assert refused.status == 503
            assert "The memory of cuda_graph, kv_cache, weights was released" in refused.text
            assert (await post(url, "/resume_memory_occupation", {})).status == 200
            assert (await chat(url)).status == 200


async def test_no_route_generates_while_memory_is_released() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        await post(server.url, "/release_memory_occupation", {})
        prompt = {"model": "m", "prompt": "x"}
        for answer in (
            await chat(server.url),
            await post(server.url, "/v1/completions", prompt),
            await post(server.url, "/generate", {"text": "x"}),
        ):
            assert (answer.status, "was released" in answer.text) == (503, True)


async def test_an_unknown_kind_of_memory_is_refused_and_nothing_is_released() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        for path in ("/release_memory_occupation", "/resume_memory_occupation"):
            tags = ["weights", "kv_cahce", *(f"tag-{number}" for number in range(1000))]
            refused = await post(server.url, path, {"tags": tags})
            assert refused.status == 400
            assert refused.json["message"] == (
                "There is no memory tag 'kv_cahce'; known: kv_cache, weights, cuda_graph"
            )
        assert (await chat(server.url)).status == 200


async def test_a_trainer_aborts_until_loads_say_that_nothing_is_left() -> None:
    policy = ScriptedPolicy([], otherwise="word " * 10_000)
    async with FakeSGLangServer(FakeSGLang(policy, latency=SLOW)) as server:
        url = server.url
        running = asyncio.create_task(chat(url))
        await until(lambda: server.engine.snapshot().running)
        load = (await get(url, "/v1/loads?include=core")).json["loads"][0]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (1, 0)
        await post(url, "/abort_request", {"abort_all": True})
        await running
        load = (await get(url, "/v1/loads?include=core")).json["loads"][0]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)


async def test_loads_count_the_tokens_of_requests_in_flight_only() -> None:
    policy = ScriptedPolicy([], otherwise="x" * 50)
    async with FakeSGLangServer(FakeSGLang(policy, max_running=1)) as server:
        url = server.url
        engine = server.engine
        for _ in range(3):
            await post(url, "/generate", {"text": "y" * 200})
        engine.pause_generation()
        running = asyncio.create_task(post(url, "/generate", {"text": "y" * 10}))
        await until(lambda: engine.snapshot().running)
        waiting = asyncio.create_task(post(url, "/generate", {"text": "y" * 7}))
        await until(lambda: engine.snapshot().waiting)

        core = (await get(url, "/v1/loads")).json["loads"][0]
        load = (await get(url, "/get_load")).json[0]
        engine.continue_generation()
        await asyncio.gather(running, waiting)
        idle = (await get(url, "/v1/loads")).json["loads"][0]

    assert (core["num_used_tokens"], core["num_total_tokens"], load["num_tokens"]) == (10, 17, 17)
    assert core["token_usage"] == 10 / core["max_total_num_tokens"]
    assert (idle["num_used_tokens"], idle["num_total_tokens"], idle["token_usage"]) == (0, 0, 0)


async def test_a_new_version_of_the_weights_aborts_what_runs_unless_it_says_no() -> None:
    policy = ScriptedPolicy([], otherwise="word " * 10_000)
    async with FakeSGLangServer(FakeSGLang(policy, latency=SLOW)) as server:
        url = server.url
        running = asyncio.create_task(chat(url))
        await until(lambda: server.engine.snapshot().running)
        await post(url, "/update_weight_version", {"new_version": "1", "abort_all_requests": False})
        assert server.engine.snapshot().running == 1
        answer = await post(url, "/update_weight_version", {"new_version": "2"})
        assert (answer.json["success"], answer.json["new_version"]) == (True, "2")
        await running
        for path in ("/weight_version", "/get_weight_version"):
            assert (await get(url, path)).json == {"weight_version": "2"}


async def test_routes_that_change_nothing_here_answer_as_the_engine() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        for path in ("/start_profile", "/stop_profile", "/freeze_gc"):
            assert (await post(server.url, path, b"")).status == 200
        arguments = {"server_args": {"max_micro_batch_size": 8}}
        for method in ("POST", "PUT"):
            answer = await post(server.url, "/set_internal_state", arguments, method=method)
            assert answer.json == [{"updated": True, **arguments}]


async def test_ping_reports_the_health_of_the_server_as_for_sagemaker() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        assert (await get(server.url, "/ping")).status == 200
        server.engine.crash()
        assert (await get(server.url, "/ping")).status == 503
        server.engine.restart()
        server.wedge(ping="alive")
        assert (await get(server.url, "/ping")).status == 200


async def test_a_route_that_the_fake_does_not_have_is_named_with_501() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        for method, path in (
            ("POST", "/classify"),
            ("POST", "/v1/responses"),
            ("GET", "/v1/responses/resp_1"),
            ("POST", "/v1/responses/resp_1/cancel"),
            ("POST", "/v1/messages"),
            ("POST", "/slow_down"),
            ("POST", "/generate_from_file"),
            ("DELETE", "/hicache/storage-backend"),
            ("POST", "/hicache/storage-backend/clear"),
            ("GET", "/remote_instance_transfer_engine_info"),
        ):
            answer = await post(server.url, path, {}, method=method)
            assert (answer.status, path in answer.json["message"]) == (501, True)
        for path in (
            "/v1/responses/resp_1/nope",
            "/v1/responses/a/b/cancel",
            "/v1/responses//cancel",
        ):
            assert (await get(server.url, path)).status == 404


async def test_top_logprobs_are_a_distribution_that_agrees_with_the_tokens() -> None:
    async with FakeSGLangServer(
        ScriptedPolicy([], otherwise="a longer answer than usual " * 4)
    ) as server:
        asked = {
            "text": "what is it?",
            "return_logprob": True,
            "logprob_start_len": 0,
            "top_logprobs_num": 40,
        }
        meta = (await post(server.url, "/generate", asked)).json["meta_info"]
    for side in ("input", "output"):
        rows = list(zip(meta[f"{side}_top_logprobs"], meta[f"{side}_token_logprobs"], strict=True))
        assert len(rows) > 5
        for top, own in rows:
            if own[0] is None:
                assert top is None
                continue
            assert own in top
            assert len({number for _, number, _ in top}) == len(top) == 40
            assert [one[0] for one in top] == sorted((one[0] for one in top), reverse=True)
            assert math.fsum(math.exp(one[0]) for one in top) <= 1


def with_content(content: Any, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


@pytest.mark.parametrize(
    ("path", "body", "place"),
    [
        ("/generate", {"text": "x", "rid": LONE}, "('body', 'rid')"),
        ("/generate", {"text": [f"a{LONE}"], "stream": True}, "('body', 'text', 0)"),
        ("/v1/chat/completions", with_content(LONE), "('body', 'messages', 0, 'content')"),
        (
            "/v1/chat/completions",
            with_content("x", tools=[{LONE: 1}]),
            "('body', 'tools', 0)",
        ),
        ("/v1/completions", {"model": "m", "prompt": LONE, "echo": True}, "('body', 'prompt')"),
        ("/parse_function_call", {"text": LONE, "tools": []}, "('body', 'text')"),
        ("/separate_reasoning", {"text": LONE, "reasoning_parser": "qwen3"}, "('body', 'text')"),
    ],
)
@pytest.mark.parametrize("escaped", [True, False])
async def test_text_that_utf_8_cannot_represent_is_refused_without_a_traceback(
    path: str, body: Any, place: str, escaped: bool, caplog: pytest.LogCaptureFixture
) -> None:
    sent = json.dumps(body, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    async with FakeSGLangServer() as server:
        answer = await post(server.url, path, sent)
    assert answer.status == 400
    assert f"'loc': {place}" in answer.json["message"]
    assert caplog.records == []


async def test_text_outside_of_the_basic_plane_is_not_mistaken_for_a_surrogate() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        for text in ("\U0001f600", "\ud7ff", "\ue000"):
            for escaped in (True, False):
                sent = json.dumps({"text": text}, ensure_ascii=escaped).encode()
                assert (await post(server.url, "/generate", sent)).status == 200
