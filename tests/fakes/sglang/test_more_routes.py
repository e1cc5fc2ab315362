"""The routes that trainers call beside generation, and a clear answer from those that the fake does
not have."""

from __future__ import annotations

import math

from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from tests.fakes.sglang.client import chat, get, post


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


async def test_a_route_that_the_fake_does_not_have_is_named_with_501() -> None:
    async with FakeSGLangServer(ScriptedPolicy([], otherwise="hi")) as server:
        for path in ("/classify", "/v1/responses", "/v1/messages", "/v1/embeddings"):
            answer = await post(server.url, path, {})
            assert (answer.status, path in answer.json["message"]) == (501, True)


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
