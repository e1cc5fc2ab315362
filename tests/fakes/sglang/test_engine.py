"""The engine object: outputs, finish reasons, refusals, aborts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sfusion.fakes.sglang import (
    Ask,
    BadValue,
    EngineDown,
    EngineRefused,
    EngineSnapshot,
    FakeSGLang,
    Latency,
    NothingToSay,
    Reply,
    ScriptedPolicy,
    ScriptedTurn,
    ToolCall,
)
from sfusion.harness.lab.worlds.virtual_time import run_virtually
from sfusion_tools.tokenizers import ByteTokenizer

TOKENIZER = ByteTokenizer()
EOS = TOKENIZER.eos_token_id


def engine(text: str = "Hello, world", **options: Any) -> FakeSGLang:
    return FakeSGLang(ScriptedPolicy([], otherwise=text), **options)


class Echo:
    """A policy that repeats the last user message."""

    def reply(self, ask: Ask) -> Reply:
        return Reply(f"you said {ask.last_user}")


async def test_answer_has_text_ids_and_meta_info_of_sglang() -> None:
    answer = await engine().async_generate("Hi", {"max_new_tokens": 99}, rid="r1")
    assert list(answer) == ["text", "output_ids", "meta_info"]
    assert answer["text"] == "Hello, world"
    meta = answer["meta_info"]
    assert meta.pop("e2e_latency") >= 0
    assert meta == {
        "id": "r1",
        "finish_reason": {"type": "stop", "matched": EOS},
        "prompt_tokens": 2,
        "weight_version": "default",
        "num_retractions": 0,
        "reasoning_tokens": 0,
        "completion_tokens": 13,
        "cached_tokens": 0,
    }


async def test_the_end_of_sequence_token_is_in_the_ids_but_not_in_the_text() -> None:
    answer = await engine("ab").async_generate("Hi")
    assert answer["output_ids"] == [97, 98, EOS]
    assert answer["text"] == "ab"


async def test_prompt_and_its_token_ids_get_the_same_answer() -> None:
    by_text = await FakeSGLang(Echo()).async_generate("ping")
    by_ids = await FakeSGLang(Echo()).async_generate(input_ids=TOKENIZER.encode("ping"))
    assert by_text["text"] == by_ids["text"] == "you said ping"


@pytest.mark.parametrize(
    ("params", "text", "finish"),
    [
        ({"max_new_tokens": 5}, "Hello", {"type": "length", "length": 5}),
        ({"max_new_tokens": 0}, "", {"type": "length", "length": 0}),
        ({"stop": "wor"}, "Hello, ", {"type": "stop", "matched": "wor"}),
        ({"stop": ["zzz", "lo", "wor"]}, "Hel", {"type": "stop", "matched": "lo"}),
        ({"stop": ["lo"], "no_stop_trim": True}, "Hello", {"type": "stop", "matched": "lo"}),
        ({"stop": ["lo"], "max_new_tokens": 4}, "Hell", {"type": "length", "length": 4}),
        ({"stop_regex": "l+"}, "He", {"type": "stop", "matched": "l+"}),
        ({"stop_token_ids": [44]}, "Hello", {"type": "stop", "matched": 44}),
        (
            {"ignore_eos": True, "max_new_tokens": 15},
            "Hello, worldHel",
            {"type": "length", "length": 15},
        ),
        ({"min_new_tokens": 14}, "Hello, worldHe", {"type": "stop", "matched": EOS}),
    ],
)
async def test_sampling_params_end_the_generation(params: Any, text: str, finish: Any) -> None:
    answer = await engine().async_generate("Hi", params)
    assert answer["text"] == text
    assert answer["meta_info"]["finish_reason"] == finish


async def test_incomplete_character_is_not_returned_as_text() -> None:
    answer = await engine("é").async_generate("Hi", {"max_new_tokens": 1})
    assert answer["text"] == ""
    assert answer["output_ids"] == [0xC3]


async def test_generation_ends_at_the_context_length() -> None:
    answer = await engine("x" * 50, context_length=10).async_generate(
        "12345", {"max_new_tokens": None}
    )
    assert answer["meta_info"]["finish_reason"] == {"type": "length", "length": 5}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({}, "Either text, input_ids or input_embeds should be provided."),
        ({"input_ids": []}, "input_ids cannot be empty."),
        (
            {"prompt": "x" * 16},
            "The input (16 tokens) is longer than the model's context length (16 tokens).",
        ),
        (
            {"prompt": "x", "sampling_params": {"max_new_tokens": 16}},
            "You requested a total of 17 tokens",
        ),
        ({"input_ids": [5000]}, "contains values greater than the vocab size (259)."),
        (
            {"prompt": "x", "sampling_params": {"temperature": -1}},
            "temperature must be a non-negative finite number",
        ),
        ({"prompt": "x", "sampling_params": {"top_p": 0}}, "top_p must be in (0, 1], got 0."),
        (
            {"prompt": "x", "sampling_params": {"top_k": 0}},
            "top_k must be -1 (disable) or at least 1, got 0.",
        ),
        ({"prompt": "x", "sampling_params": {"min_p": 2}}, "min_p must be in [0, 1], got 2."),
        (
            {"prompt": "x", "sampling_params": {"presence_penalty": 3}},
            "presence_penalty must be in [-2, 2], got 3.",
        ),
        (
            {"prompt": "x", "sampling_params": {"repetition_penalty": 0}},
            "repetition_penalty must be in (0, 2]",
        ),
        (
            {"prompt": "x", "sampling_params": {"max_new_tokens": -1}},
            "max_new_tokens must be at least 0, got -1.",
        ),
        (
            {"prompt": "x", "sampling_params": {"min_new_tokens": 9, "max_new_tokens": 3}},
            "min_new_tokens must be in [0, max_new_tokens(3)], got 9.",
        ),
        (
            {"prompt": "x", "sampling_params": {"regex": "a", "ebnf": "b"}},
            "Only one of json_schema, regex, ebnf",
        ),
        (
            {"prompt": "x", "sampling_params": {"logit_bias": {"999": 1}}},
            "logit_bias must has keys in [0, 258]",
        ),
        ({"prompt": "x", "sampling_params": {"n": 0}}, "n must be at least 1, got 0."),
        ({"prompt": ["x"], "sampling_params": {"n": -1}}, "n must be at least 1, got -1."),
        ({"prompt": []}, "The batch has no prompt."),
        ({"prompt": "x", "sampling_params": {"warmth": 1}}, "unexpected keyword argument 'warmth'"),
        ({"prompt": ["a", "b"], "rid": ["same", "same"]}, "Duplicate request IDs detected"),
        ({"prompt": ["a", "b"], "sampling_params": [{}]}, "the batch has 2 prompts"),
    ],
)
async def test_invalid_requests_are_refused_with_the_message_of_sglang(
    asked: Any, why: str
) -> None:
    with pytest.raises(BadValue) as refused:
        await engine(context_length=16).async_generate(**asked)
    assert isinstance(refused.value, ValueError)
    assert why in str(refused.value)


async def test_batches_and_samples_are_ordered_and_have_unique_ids() -> None:
    answers = await FakeSGLang(Echo()).async_generate(["a", "b"], {"n": 2}, rid="job")
    assert [answer["text"] for answer in answers] == [
        "you said a",
        "you said a",
        "you said b",
        "you said b",
    ]
    assert [answer["meta_info"]["id"] for answer in answers] == ["job_0", "job_1", "job_2", "job_3"]


async def test_stream_is_cumulative_and_finishes_last() -> None:
    stream = await engine("Hello", stream_interval=2).async_generate("Hi", stream=True)
    items = [item async for item in stream]
    assert [item["text"] for item in items] == ["He", "Hell", "Hello", "Hello"]
    assert [item["meta_info"]["finish_reason"] is None for item in items] == [
        True,
        True,
        True,
        False,
    ]
    assert items[-1]["output_ids"] == [*b"Hello", EOS]
    whole = await engine("Hello").async_generate("Hi")
    assert whole["output_ids"] == items[-1]["output_ids"]


async def test_a_batched_stream_has_an_index() -> None:
    stream = await FakeSGLang(Echo()).async_generate(["a", "b"], stream=True)
    texts: dict[int, str] = {}
    async for item in stream:
        texts[item["index"]] = item["text"]
    assert texts == {0: "you said a", 1: "you said b"}


async def test_multi_byte_characters_are_streamed_whole() -> None:
    stream = await engine("naïve 日本 ok", stream_interval=1).async_generate("Hi", stream=True)
    texts = [item["text"] async for item in stream]
    assert "\ufffd" not in "".join(texts)
    assert texts[-1] == "naïve 日本 ok"


async def test_logprobs_are_returned_as_requested() -> None:
    answer = await engine("ab").async_generate(
        "Hi", return_logprob=True, top_logprobs_num=2, logprob_start_len=0, token_ids_logprob=[65]
    )
    meta = answer["meta_info"]
    assert [number for _, number, _ in meta["output_token_logprobs"]] == answer["output_ids"]
    assert all(logprob <= 0 and text is None for logprob, _, text in meta["output_token_logprobs"])
    assert meta["output_token_logprobs_length"] == 3
    assert [len(row) for row in meta["output_top_logprobs"]] == [2, 2, 2]
    assert [number for _, number, _ in meta["input_token_logprobs"]] == [72, 105]
    assert meta["input_token_logprobs"][0][0] is None
    assert all(row[0][1] == 65 for row in meta["output_token_ids_logprobs"])


async def test_a_repeated_prompt_is_cached_until_the_cache_is_flushed() -> None:
    one = engine()
    prompt = "a prompt of some forty characters, or so it is"
    assert (await one.async_generate(prompt))["meta_info"]["cached_tokens"] == 0
    again = (await one.async_generate(prompt + " and more"))["meta_info"]["cached_tokens"]
    assert 0 < again < len(prompt)
    assert one.flush_cache()
    assert (await one.async_generate(prompt))["meta_info"]["cached_tokens"] == 0


async def test_a_prompt_that_grows_is_cached_up_to_what_was_served_before() -> None:
    one, prompt, cached = engine(), "", []
    for turn in range(4):
        prompt += f"turn {turn} of a conversation, in so many words. "
        cached.append((await one.async_generate(prompt))["meta_info"]["cached_tokens"])
    turn_length = len(prompt) // 4
    assert cached == [turn_length * before // 16 * 16 for before in range(4)]


def test_latency_uses_the_time_of_the_loop_and_grows_with_load() -> None:
    async def one() -> float:
        slow = engine("x" * 9, latency=Latency(first_token=2.0, per_token=0.5))
        return float((await slow.async_generate("Hi"))["meta_info"]["e2e_latency"])

    async def two() -> list[float]:
        slow = engine("x" * 9, latency=Latency(first_token=2.0, per_token=0.5, load=1.0))
        answers = await asyncio.gather(*(slow.async_generate(text) for text in ("a", "b")))
        return sorted(answer["meta_info"]["e2e_latency"] for answer in answers)

    assert run_virtually(one()) == pytest.approx(2.0 + 9 * 0.5)
    alone, beside = run_virtually(two())
    assert (alone, beside) == pytest.approx((6.5, 13.0))


def test_a_stream_takes_as_long_as_a_whole_answer() -> None:
    async def streamed() -> float:
        slow = engine("x" * 9, latency=Latency(first_token=2.0, per_token=0.5), stream_interval=3)
        last: Any = None
        async for item in await slow.async_generate("Hi", stream=True):
            last = item
        return float(last["meta_info"]["e2e_latency"])

    assert run_virtually(streamed()) == pytest.approx(6.5)


def test_the_tokens_in_flight_grow_with_a_stream() -> None:
    async def seen() -> list[int]:
        streaming = engine("x" * 9, stream_interval=3)
        answer = await streaming.async_generate("Hi", stream=True)
        counts = [streaming.snapshot().running_tokens async for _ in answer]
        return [*counts, streaming.snapshot().running_tokens]

    prompt, end = len("Hi"), 1
    assert run_virtually(seen()) == [prompt + 3, prompt + 6, prompt + 9, prompt + 9 + end, 0]


def test_abort_keeps_the_tokens_so_far() -> None:
    async def aborted() -> tuple[Any, EngineSnapshot]:
        slow = engine(
            "abcdefgh", latency=Latency(first_token=1.0, per_token=1.0), stream_interval=1
        )
        task = asyncio.create_task(slow.async_generate("Hi", rid="job-7"))
        await asyncio.sleep(4.5)
        assert slow.abort_request("") == 0
        assert slow.abort_request("other") == 0
        assert slow.abort_request("job-") == 1
        return await task, slow.snapshot()

    answer, snapshot = run_virtually(aborted())
    assert answer["text"] == "abcd"
    assert answer["meta_info"]["finish_reason"] == {
        "type": "abort",
        "message": "Aborted",
        "status_code": None,
        "err_type": None,
    }
    assert (snapshot.running, snapshot.aborted, snapshot.finished) == (0, 1, 0)


def test_abort_ends_streams_and_waiting_requests() -> None:
    async def aborted() -> list[str]:
        slow = engine("abcdefgh", latency=Latency(per_token=1.0), stream_interval=1, max_running=1)

        async def last() -> str:
            items = [item async for item in await slow.async_generate("Hi", stream=True)]
            return f"{items[-1]['text']}:{items[-1]['meta_info']['finish_reason']['type']}"

        tasks = [asyncio.create_task(last()) for _ in range(2)]
        await asyncio.sleep(2.5)
        assert slow.snapshot().waiting == 1
        slow.abort_request(abort_all=True)
        return list(await asyncio.gather(*tasks))

    assert run_virtually(aborted()) == ["abc:abort", ":abort"]


def test_slots_are_given_in_order_of_arrival_and_the_rest_is_refused() -> None:
    async def crowd() -> tuple[list[str], int]:
        slow = FakeSGLang(Echo(), latency=Latency(first_token=1.0), max_running=1, max_queued=2)
        order: list[str] = []

        async def one(name: str) -> None:
            await slow.async_generate(name)
            order.append(name)

        results = await asyncio.gather(*(one(name) for name in "abcde"), return_exceptions=True)
        return order, sum(isinstance(result, EngineRefused) for result in results)

    assert run_virtually(crowd()) == (["a", "b", "c"], 2)


def test_a_crash_loses_running_requests_and_a_restart_serves_again() -> None:
    async def crashed() -> str:
        slow = engine("ok", latency=Latency(first_token=5.0))
        task = asyncio.create_task(slow.async_generate("Hi"))
        await asyncio.sleep(1)
        slow.crash()
        with pytest.raises(EngineDown):
            await task
        with pytest.raises(EngineDown):
            await slow.async_generate("Hi")
        slow.restart()
        return str((await slow.async_generate("Hi"))["text"])

    assert run_virtually(crashed()) == "ok"


def test_pause_aborts_by_default_and_stops_time_in_place() -> None:
    async def paused() -> tuple[float, str]:
        slow = engine("abc", latency=Latency(first_token=2.0, per_token=1.0))
        task = asyncio.create_task(slow.async_generate("Hi"))
        await asyncio.sleep(1)
        slow.pause_generation("in_place")
        await asyncio.sleep(10)
        slow.continue_generation()
        latency = (await task)["meta_info"]["e2e_latency"]
        task = asyncio.create_task(slow.async_generate("Hi"))
        await asyncio.sleep(1)
        slow.pause_generation()
        return latency, (await task)["meta_info"]["finish_reason"]["type"]

    assert run_virtually(paused()) == (pytest.approx(15.0), "abort")


async def test_flush_is_refused_while_anything_runs() -> None:
    slow = engine(latency=Latency(first_token=3600))
    task = asyncio.create_task(slow.async_generate("Hi"))
    await asyncio.sleep(0)
    assert not slow.flush_cache()
    slow.abort_request(abort_all=True)
    await task
    assert slow.flush_cache()


async def test_a_cancelled_caller_frees_its_slot() -> None:
    slow = engine(latency=Latency(first_token=3600), max_running=1)
    task = asyncio.create_task(slow.async_generate("Hi"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    snapshot = slow.snapshot()
    assert (snapshot.running, snapshot.aborted) == (0, 1)


async def test_calls_are_written_in_the_format_of_the_engine() -> None:
    calls = (ToolCall("code_interpreter", {"code": "print(1)"}),)
    for name, begins in (
        ("qwen25", "<tool_call>\n{"),
        ("llama3", "<|python_tag|>"),
        ("pythonic", "[code_interp"),
    ):
        speaking = FakeSGLang(ScriptedPolicy([ScriptedTurn(calls=calls)]), format=name)
        assert (await speaking.async_generate("Hi"))["text"].startswith(begins)


async def test_calls_that_a_format_cannot_express_are_not_a_client_error() -> None:
    calls = (ToolCall("not an identifier", {"code": "x"}),)
    with pytest.raises(NothingToSay, match="pythonic"):
        await FakeSGLang(
            ScriptedPolicy([ScriptedTurn(calls=calls)]), format="pythonic"
        ).async_generate("Hi")


@pytest.mark.parametrize(("labelled", "type"), [(False, "stop"), (True, "tool_calls")])
async def test_label_tool_calls_sets_the_finish_reason(labelled: bool, type: str) -> None:
    script = ScriptedPolicy(
        [
            ScriptedTurn(calls=(ToolCall("search", {"query": "x"}),)),
            ScriptedTurn(say="done", turn=1),
        ]
    )
    speaking = FakeSGLang(script, label_tool_calls=labelled)
    assert (await speaking.async_generate("Hi"))["meta_info"]["finish_reason"]["type"] == type
    cut = await speaking.async_generate("Hi", {"max_new_tokens": 5})
    assert cut["meta_info"]["finish_reason"]["type"] == "length"
