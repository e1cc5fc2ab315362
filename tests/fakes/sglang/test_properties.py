"""Properties of the pure parts, for any text, cut and body."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sfusion.fakes.sglang import FakeSGLang, ScriptedPolicy
from sfusion.fakes.sglang.calls import ArrayParser
from sfusion.fakes.sglang.reasoning import PARSERS
from sfusion.fakes.sglang.routes import ModelInfo
from sfusion.fakes.sglang.server import SGLangApp
from sfusion.fakes.wire import Request

MODEST = settings(max_examples=25)
TEXTS = st.text(alphabet=st.sampled_from("ab é日🚀\n<>/think{}[]\"'"), max_size=40)


@MODEST
@given(
    text=TEXTS,
    interval=st.integers(1, 7),
    limit=st.integers(0, 60),
    stop=st.sampled_from(["", "b", "é", "a b"]),
)
def test_a_stream_adds_up_to_the_whole_answer(
    text: str, interval: int, limit: int, stop: str
) -> None:
    async def both() -> tuple[Any, list[Any]]:
        params = {"max_new_tokens": limit, "stop": [stop] if stop else None}
        whole = await FakeSGLang(ScriptedPolicy([text])).async_generate("x", params)
        streaming = FakeSGLang(ScriptedPolicy([text]), stream_interval=interval)
        return whole, [
            item async for item in await streaming.async_generate("x", params, stream=True)
        ]

    whole, items = asyncio.run(both())
    assert items[-1]["text"] == whole["text"]
    assert items[-1]["output_ids"] == whole["output_ids"]
    assert items[-1]["meta_info"]["finish_reason"] == whole["meta_info"]["finish_reason"]
    for before, after in itertools.pairwise(items):
        assert after["text"].startswith(before["text"])
    assert text.startswith(whole["text"])
    assert not stop or stop not in whole["text"]


@MODEST
@given(
    pieces=st.lists(
        st.sampled_from(["<think>", "</think>", "<tool_call>", "a", "\n", "<", "</th"]), max_size=8
    ),
    cuts=st.lists(st.integers(1, 9), max_size=20),
    name=st.sampled_from(["qwen3", "deepseek-r1", "glm45", "kimi"]),
    inside=st.booleans(),
)
def test_thinking_and_answer_do_not_depend_on_the_chunks(
    pieces: list[str], cuts: list[int], name: str, inside: bool
) -> None:
    text = "".join(pieces)

    def response(chunks: list[str]) -> tuple[str, str]:
        stream = PARSERS[name].stream(inside)
        parts = [*map(stream.feed, chunks), stream.finish()]
        return "".join(thought for thought, _ in parts), "".join(rest for _, rest in parts)

    chunks, at = [], 0
    for cut in cuts:
        chunks.append(text[at : at + cut])
        at += cut
    chunks.append(text[at:])
    assert response(chunks) == response(list(text))


HARMONY = [
    "<|start|>assistant",
    "<|channel|>analysis<|message|>hm<|end|>",
    "<|channel|>final<|message|>yes<|return|>",
    "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
    "plain < text",
    "<|",
]


@MODEST
@given(pieces=st.lists(st.sampled_from(HARMONY), max_size=5), size=st.integers(1, 12))
def test_harmony_channels_do_not_depend_on_the_chunks(pieces: list[str], size: int) -> None:
    text = "".join(pieces)

    def response(size: int) -> tuple[str, str]:
        stream = PARSERS["gpt-oss"].stream(False)
        parts = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)] + [
            stream.finish()
        ]
        return "".join(thought for thought, _ in parts), "".join(rest for _, rest in parts)

    assert response(size) == response(1)
    assert response(size)[0] == "hm" * pieces.count(HARMONY[1])


ARGUMENTS = st.dictionaries(
    st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=8), st.none()), max_size=3
)


@MODEST
@given(
    calls=st.lists(st.tuples(st.text(min_size=1, max_size=6), ARGUMENTS), max_size=3),
    size=st.integers(1, 9),
)
def test_an_array_of_calls_parses_the_same_streamed_and_whole(
    calls: list[tuple[str, dict[str, Any]]], size: int
) -> None:
    text = json.dumps([{"name": name, "parameters": arguments} for name, arguments in calls])
    stream = ArrayParser().stream([])
    held: dict[int, list[str]] = {}
    for at in range(0, len(text), size):
        for piece in stream.feed(text[at : at + size]).pieces:
            call = held.setdefault(piece.index, ["", ""])
            call[0] += piece.name or ""
            call[1] += piece.arguments
    whole = ArrayParser().whole(text, [], "stop")
    assert whole is not None
    assert [(name, arguments) for name, arguments in held.values()] == [
        (piece.name, piece.arguments) for piece in whole.pieces
    ]


class IgnoredExecution:
    """An execution listener that ignores everything."""

    def started(self) -> None:
        pass

    def finished(self) -> None:
        pass


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "model",
        "tools",
        "tool_choice",
        "stream",
        "n",
        "stop",
        "max_tokens",
        "logprobs",
        "text",
        "input_ids",
        "sampling_params",
        "prompt",
        "echo",
        "reasoning_effort",
        "stream_options",
        "response_format",
        "rid",
        "temperature",
    ]
)
GOOD = {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "text": "hi"}


@settings(max_examples=100)
@given(
    path=st.sampled_from(
        ["/v1/chat/completions", "/v1/completions", "/generate", "/abort_request"]
    ),
    changes=st.dictionaries(FIELDS, JSON, max_size=3),
)
def test_server_answers_200_or_400_to_any_body(path: str, changes: dict[str, Any]) -> None:
    async def ask() -> int:
        app = SGLangApp(
            FakeSGLang(ScriptedPolicy([], otherwise="ok"), context_length=512), ModelInfo()
        )
        body = json.dumps(GOOD | changes).encode()
        request = Request("POST", path, "", {"Content-Type": "application/json"}, body=body)
        answer = await app.visit(request).answer(IgnoredExecution())
        if answer.stream is not None:
            assert b"".join([piece async for piece in answer.stream]).endswith(b"data: [DONE]\n\n")
        return answer.status

    assert asyncio.run(ask()) in (200, 400)
