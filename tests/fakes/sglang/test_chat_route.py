"""The chat route beyond the recordings: choices, usage, constraints, reasoning, and refusals."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import aiohttp
import pytest

from sfusion.fakes.sglang import (
    Ask,
    FakeSGLang,
    FakeSGLangServer,
    Reply,
    ScriptedPolicy,
    ScriptedTurn,
    Step,
    ToolCall,
)
from tests.fakes.sglang.client import CODE_TOOL, HI, SEARCH_TOOL, chat, get, post

CALL = ToolCall("code_interpreter", {"code": "print('é' + \"\\n\")"})


def saying(text: str = "Hello", *calls: ToolCall, **options: Any) -> FakeSGLangServer:
    return FakeSGLangServer(ScriptedPolicy([ScriptedTurn(say=text, calls=calls)]), **options)


def streamed(events: list[Any]) -> dict[str, Any]:
    """Return what a streaming client ends up with, of the first choice."""
    answer: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None}
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            answer["content"] += delta.get("content") or ""
            answer["reasoning"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or ():
                call = answer["calls"].setdefault(piece["index"], {"arguments": ""})
                call["name"] = piece["function"]["name"] or call.get("name")
                call["id"] = piece["id"] or call.get("id")
                call["arguments"] += piece["function"]["arguments"]
            answer["finish"] = choice["finish_reason"] or answer["finish"]
    return answer


async def test_a_server_reads_calls_in_the_format_of_its_engine() -> None:
    engine = FakeSGLang(ScriptedPolicy([ScriptedTurn(calls=(CALL,))]), format="mistral")
    async with FakeSGLangServer(engine) as server:
        message = (await chat(server.url, tools=[CODE_TOOL])).json["choices"][0]["message"]
        info = (await get(server.url, "/model_info")).json
    assert message["tool_calls"][0]["function"]["name"] == CALL.name
    assert not message["content"]
    assert info["tool_call_parser"] == "mistral"


@pytest.mark.parametrize("parser", [None, "hermes"])
async def test_a_parser_that_is_given_wins_over_the_format_of_the_engine(
    parser: str | None,
) -> None:
    engine = FakeSGLang(ScriptedPolicy([ScriptedTurn(calls=(CALL,))]), format="mistral")
    async with FakeSGLangServer(engine, tool_call_parser=parser) as server:
        message = (await chat(server.url, tools=[CODE_TOOL])).json["choices"][0]["message"]
        assert (await get(server.url, "/model_info")).json["tool_call_parser"] == parser
    assert message["tool_calls"] is None
    assert message["content"].startswith("[TOOL_CALLS]")


async def test_calls_are_complete_and_have_unique_ids() -> None:
    async with saying("Let me see.", CALL, CALL) as server:
        body = (await chat(server.url, tools=[CODE_TOOL])).json
    (choice,) = body["choices"]
    calls = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "Let me see."
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [
        dict(CALL.arguments)
    ] * 2
    assert [call["index"] for call in calls] == [0, 1]
    assert len({call["id"] for call in calls}) == 2


@pytest.mark.parametrize(
    "format", ["hermes", "qwen3_coder", "llama3", "mistral", "deepseekv31", "glm45", "kimi_k2"]
)
async def test_streamed_and_whole_answers_have_the_same_calls(format: str) -> None:
    async with saying(
        "", CALL, ToolCall("search", {"query": "π", "top_k": 3}), tool_call_parser=format
    ) as server:
        whole = (await chat(server.url, tools=[CODE_TOOL, SEARCH_TOOL])).json["choices"][0]
        events = (await chat(server.url, tools=[CODE_TOOL, SEARCH_TOOL], stream=True)).events
    answer = streamed(events)
    assert [(call["name"], call["arguments"]) for call in answer["calls"].values()] == [
        (call["function"]["name"], call["function"]["arguments"])
        for call in whole["message"]["tool_calls"]
    ]
    assert answer["finish"] == whole["finish_reason"] == "tool_calls"


async def test_a_stream_begins_with_the_role_and_ends_with_finish_usage_and_done() -> None:
    async with saying("Hello there") as server:
        events = (
            await chat(server.url, stream=True, stream_options={"include_usage": True})
        ).events
    assert events[0]["choices"][0]["delta"] == {
        "reasoning_content": None,
        "role": "assistant",
        "content": "",
    }
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["choices"] == []
    assert events[-1]["usage"]["completion_tokens"] == 12
    assert (
        "".join(event["choices"][0]["delta"].get("content", "") for event in events[:-1])
        == "Hello there"
    )


async def test_several_samples_are_choices_and_their_prompt_counts_once() -> None:
    async with saying("four") as server:
        one = (await chat(server.url)).json["usage"]
        body = (await chat(server.url, n=3)).json
        events = (
            await chat(server.url, n=3, stream=True, stream_options={"include_usage": True})
        ).events
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert body["usage"]["prompt_tokens"] == one["prompt_tokens"]
    assert body["usage"]["completion_tokens"] == 3 * one["completion_tokens"]
    assert events[-1]["usage"] == body["usage"]
    finishes = [c["index"] for event in events for c in event["choices"] if c["finish_reason"]]
    assert sorted(finishes) == [0, 1, 2]


async def test_every_token_has_logprobs_streaming_or_not() -> None:
    async with saying("Hi!") as server:
        whole = (await chat(server.url, logprobs=True, top_logprobs=2)).json["choices"][0][
            "logprobs"
        ]["content"]
        events = (await chat(server.url, logprobs=True, top_logprobs=2, stream=True)).events
    assert [row["token"] for row in whole] == ["H", "i", "!", "<|im_end|>"]
    assert all(len(row["top_logprobs"]) == 2 for row in whole)
    pieces = [
        choice["logprobs"] for event in events for choice in event["choices"] if choice["logprobs"]
    ]
    assert [row["token"] for piece in pieces for row in piece["content"]][:3] == ["H", "i", "!"]


async def test_tool_choice_required_forces_a_call() -> None:
    async with saying("I would rather talk.") as server:
        body = (await chat(server.url, tools=[SEARCH_TOOL], tool_choice="required")).json
    (call,) = body["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"query": "", "top_k": 0}


@pytest.mark.parametrize("format", ["qwen25", "glm45", "pythonic"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_named_tool_choice_forces_a_call_of_that_tool(format: str, stream: bool) -> None:
    choice = {"type": "function", "function": {"name": "search"}}
    async with saying("", CALL, tool_call_parser=format) as server:
        answer = await chat(
            server.url, tools=[CODE_TOOL, SEARCH_TOOL], tool_choice=choice, stream=stream
        )
    names = (
        [call["name"] for call in streamed(answer.events)["calls"].values()]
        if stream
        else [
            call["function"]["name"] for call in answer.json["choices"][0]["message"]["tool_calls"]
        ]
    )
    assert names == ["search"]


async def test_parallel_tool_calls_false_allows_only_one_call() -> None:
    async with saying("", CALL, CALL) as server:
        body = (await chat(server.url, tools=[CODE_TOOL], parallel_tool_calls=False)).json
    assert len(body["choices"][0]["message"]["tool_calls"]) == 1


async def test_without_tools_or_with_choice_none_a_call_stays_text() -> None:
    async with saying("", CALL) as server:
        for more in ({}, {"tools": [CODE_TOOL], "tool_choice": "none"}):
            message = (await chat(server.url, **more)).json["choices"][0]["message"]
            assert message["tool_calls"] is None
            assert message["content"].startswith("<tool_call>")


async def test_a_call_of_an_unknown_tool_is_returned_and_a_broken_call_is_reported() -> None:
    broken = (
        '<tool_call>\n{"name": "code_interpreter", "arguments": {"code": '
        "\"re.match('\\d')\"\n</tool_call>"
    )
    async with saying("", ToolCall("rm_rf", {"path": "/"})) as server:
        body = (await chat(server.url, tools=[CODE_TOOL])).json
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "rm_rf"
    async with saying(broken) as server:
        choice = (await chat(server.url, tools=[CODE_TOOL])).json["choices"][0]
        events = (await chat(server.url, tools=[CODE_TOOL], stream=True)).events
    assert choice["message"]["tool_calls"] is None
    assert [problem["severity"] for problem in choice["problems"]] == ["refused"]
    assert events[-1]["choices"][0]["problems"] == choice["problems"]


async def test_finish_reason_length_is_kept_if_there_are_calls() -> None:
    async with FakeSGLangServer(
        ScriptedPolicy([ScriptedTurn(calls=(CALL,), finish="length")])
    ) as server:
        choice = (await chat(server.url, tools=[CODE_TOOL])).json["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_reasoning_parser_separates_thinking(stream: bool) -> None:
    async with saying("<think>\nhm\n</think>\n\nYes.", reasoning_parser="qwen3") as server:
        answer = await chat(server.url, stream=stream)
    if stream:
        held = streamed(answer.events)
        assert (held["reasoning"], held["content"]) == ("\nhm\n", "\n\nYes.")
    else:
        message = answer.json["choices"][0]["message"]
        assert (message["reasoning_content"], message["content"]) == ("\nhm\n", "\n\nYes.")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("more", "reasoning", "content"),
    [
        ({}, "No end", ""),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "", "No end"),
        ({"separate_reasoning": False}, "", "No end"),
        ({"reasoning_effort": "none"}, "", "No end"),
    ],
)
async def test_unclosed_thinking_is_all_reasoning_if_thinking_is_on(
    more: dict[str, Any], reasoning: str, content: str, stream: bool
) -> None:
    async with saying("No end", reasoning_parser="qwen3") as server:
        answer = await chat(server.url, stream=stream, **more)
    if stream:
        held = streamed(answer.events)
        assert (held["reasoning"], held["content"]) == (reasoning, content)
    else:
        message = answer.json["choices"][0]["message"]
        assert (message["reasoning_content"] or "", message["content"]) == (reasoning, content)


@pytest.mark.parametrize("stream", [False, True])
async def test_harmony_separates_analysis_final_and_calls(stream: bool) -> None:
    text = (
        "<|channel|>analysis<|message|>I need code.<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.code_interpreter "
        "<|constrain|>json<|message|>"
        '{"code": "print(1)"}<|call|>'
    )
    async with saying(text, tool_call_parser="gpt-oss", reasoning_parser="gpt-oss") as server:
        answer = await chat(server.url, tools=[CODE_TOOL], stream=stream)
    if stream:
        held = streamed(answer.events)
        assert held["reasoning"] == "I need code."
        assert held["calls"][0]["arguments"] == '{"code": "print(1)"}'
    else:
        message = answer.json["choices"][0]["message"]
        assert message["reasoning_content"] == "I need code."
        assert message["tool_calls"][0]["function"]["arguments"] == '{"code": "print(1)"}'


async def test_tool_results_of_several_turns_reach_the_policy() -> None:
    asked: list[Ask] = []

    class Listening:
        def reply(self, ask: Ask) -> Reply:
            asked.append(ask)
            return Reply("ok")

    messages = [
        *HI,
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "found"}]},
    ]
    async with FakeSGLangServer(Listening()) as server:
        assert (await chat(server.url, messages=messages, tools=[SEARCH_TOOL])).status == 200
    (ask,) = asked
    assert (ask.turn, ask.tool_results, ask.tool_names) == (1, ("found",), ("search",))
    assert "<tools>" in ask.prompt
    assert ask.prompt.endswith("<|im_start|>assistant\n")


@pytest.mark.parametrize(
    ("body", "type", "why"),
    [
        ({"messages": []}, "BadRequestError", "Messages cannot be empty."),
        (
            {"tool_choice": "required"},
            "BadRequestError",
            "Tools cannot be empty if tool choice is set to required.",
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "x"}}},
            "BadRequestError",
            "Tools cannot be empty if tool choice is set to a specific tool.",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "BadRequestError",
            "schema_ is required for json_schema response format request.",
        ),
        ({"n": 0}, "BadRequestError", "n must be at least 1, got 0."),
        (
            {"temperature": -1},
            "BadRequestError",
            "temperature must be a non-negative finite number, got -1.0.",
        ),
        ({"max_tokens": 99999}, "BadRequestError", "max_completion_tokens is too large: 99999."),
        (
            {"max_tokens": 32760},
            "BadRequestError",
            "Requested token count exceeds the model's maximum context length",
        ),
        ({"messages": None}, "Bad Request", "Input should be a valid list"),
        ({"n": "many"}, "Bad Request", "('body', 'n')"),
        ({"reasoning_effort": True}, "Bad Request", "reasoning_effort must not be a boolean"),
        ({"messages": [{"role": "user"}]}, "Bad Request", "Field required"),
        (
            {
                "messages": [
                    *HI,
                    {
                        "role": "assistant",
                        "tool_calls": [{"function": {"name": "x", "arguments": "{oops"}}],
                    },
                    *HI,
                ]
            },
            "BadRequest",
            "Assistant tool call function.arguments must be valid JSON.",
        ),
        (
            {
                "messages": [
                    *HI,
                    {"role": "assistant", "tool_calls": [{"function": {"arguments": "[]"}}]},
                    *HI,
                ]
            },
            "BadRequest",
            "Assistant tool call function.arguments must be a JSON object.",
        ),
        (
            {"stream": True, "return_meta_info": True},
            "BadRequest",
            "return_meta_info is not supported with streaming.",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_refused_request_gets_the_flat_error_of_sglang(
    body: Any, type: str, why: str, stream: bool
) -> None:
    async with saying() as server:
        answer = await chat(server.url, **({"stream": stream} | body))
    assert answer.status == 400
    assert list(answer.json) == ["object", "message", "type", "param", "code"]
    assert why in answer.json["message"]
    assert (answer.json["type"], answer.json["code"]) == (type, 400)


async def test_the_server_survives_bodies_that_are_not_objects() -> None:
    async with saying() as server:
        for body, status in ((b"[]", 500), (b"\xff\xfe", 400), (b"", 400), (b"3", 500)):
            assert (await post(server.url, "/v1/chat/completions", body)).status == status
        assert (await chat(server.url)).status == 200


async def test_bodies_are_refused_as_on_the_python_of_the_real_server() -> None:
    """3.12 and 3.13 parse deeper nesting, and 3.13 calls a trailing comma by its name."""
    async with saying() as server:
        for depth, status in ((900, 200), (1200, 400)):
            body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "extra": %s}'
            answer = await post(
                server.url, "/v1/chat/completions", body % (b"[" * depth + b"]" * depth)
            )
            assert answer.status == status, depth
        assert answer.json["message"] == "There was an error parsing the body"
        answer = await post(server.url, "/v1/chat/completions", b'{"model": "m", }')
        assert "'loc': ('body', 15)" in answer.json["message"]
        assert "Expecting property name enclosed in double quotes" in answer.json["message"]


async def test_a_script_without_a_matching_turn_is_an_internal_error_with_the_reason() -> None:
    async with FakeSGLangServer(ScriptedPolicy([])) as server:
        for stream in (False, True):
            answer = await chat(server.url, stream=stream)
            assert answer.status == 500
            assert answer.json["type"] == "InternalServerError"
            assert "No turn of the script matches" in answer.json["message"]


async def test_an_unknown_model_is_echoed_and_a_final_assistant_message_continued() -> None:
    async with FakeSGLangServer(FakeSGLang(ScriptedPolicy([], otherwise="and so on"))) as server:
        body = (await chat(server.url, model="whatever")).json
        assert body["model"] == "whatever"
        messages = [*HI, {"role": "assistant", "content": "Once upon"}]
        answer = await chat(server.url, messages=messages, continue_final_message=True)
        assert answer.json["choices"][0]["message"]["content"] == "and so on"


async def test_a_stream_has_content_calls_and_log_probabilities_once() -> None:
    engine = FakeSGLang(
        ScriptedPolicy([ScriptedTurn(say="Let me see. ☃", calls=(CALL,))]), stream_interval=3
    )
    async with FakeSGLangServer(engine) as server:
        events = (await chat(server.url, tools=[CODE_TOOL], stream=True, logprobs=True)).events
    answer = streamed(events)
    assert answer["content"] == "Let me see. ☃"
    assert json.loads(answer["calls"][0]["arguments"]) == dict(CALL.arguments)
    rows = [
        row
        for e in events
        for c in e["choices"]
        if c["logprobs"]
        for row in c["logprobs"]["content"]
    ]
    assert rows[-1]["token"] == "<|im_end|>"


class Broken:
    """A policy with a bug, before or after the first step."""

    def __init__(self, after: int) -> None:
        self.after = after

    def reply(self, ask: Ask) -> Reply:
        steps = (Step("a", (97,)), Step("b", (98,)))
        return Reply(steps=steps, error=KeyError("a bug of the policy"), error_after=self.after)


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_bug_of_a_policy_is_logged(
    path: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with FakeSGLangServer(FakeSGLang(Broken(after=1))) as server:
        body = {"messages": HI, "prompt": "hi", "text": "hi", "stream": stream}
        with suppress(aiohttp.ClientPayloadError):  # of a stream that has begun
            await post(server.url, path, body)
    assert "a bug of the policy" in caplog.text
