"""The real openai SDK, sync and async, streaming and not, with a server in process and as a
command."""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from sfusion.fakes.sglang import FakeSGLangServer, WordProblem, problems
from tests.fakes.sglang.client import CODE_TOOL
from tests.harness.serving.serve_sglang import serving
from tests.lazy import Lazy
from tests.patience import PATIENCE

pytestmark = pytest.mark.xdist_group("openai sdk")

openai: Any = Lazy("openai")

JOHN, OTHER = problems(3, 2)


@pytest.fixture(scope="module")
def command() -> Iterator[str]:
    """The URL of ``sfusion serve sglang`` in its own process."""
    with serving("--port", "0") as (process, url):
        yield url
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.read().endswith("stopped\n")
        assert process.wait(timeout=PATIENCE) == 0


@pytest.fixture(scope="module")
def in_process() -> Iterator[str]:
    """The URL of a server in a thread of this process."""
    with FakeSGLangServer() as server:
        yield server.url


@pytest.fixture(params=["in_process", "command"])
def url(request: pytest.FixtureRequest) -> str:
    return f"{request.getfixturevalue(request.param)}/v1"


def run(arguments: str) -> str:
    """Run the program like the tool."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(json.loads(arguments)["code"], "program", "exec"), {})
    return out.getvalue()


def answered(messages: list[Any], text: str | None, calls: list[tuple[str, str, str]]) -> list[Any]:
    """Return the conversation after a turn of the assistant and its tool results."""
    reply: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        reply["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    results = [
        {"role": "tool", "tool_call_id": id, "content": run(arguments)}
        for id, _, arguments in calls
    ]
    return [*messages, reply, *results]


def held(chunks: list[Any]) -> tuple[str, list[tuple[str, str, str]], str]:
    """Return the text, calls and finish reason of a stream."""
    text, calls, finish = "", {}, ""
    for chunk in chunks:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for piece in choice.delta.tool_calls or ():
                call = calls.setdefault(piece.index, ["", "", ""])
                call[0] += piece.id or ""
                call[1] += piece.function.name or ""
                call[2] += piece.function.arguments or ""
            finish = choice.finish_reason or finish
    return text, [(id, name, arguments) for id, name, arguments in calls.values()], finish


@pytest.mark.parametrize("problem", [JOHN, OTHER], ids=lambda problem: problem.id)
@pytest.mark.parametrize("stream", [False, True])
def test_sync_client_solves_a_problem_over_several_turns(
    url: str, problem: WordProblem, stream: bool
) -> None:
    messages: list[Any] = problem.messages()
    finishes = []
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for _ in range(2):
            if stream:
                with client.chat.completions.create(
                    model="m", messages=messages, tools=[CODE_TOOL], stream=True
                ) as chunks:
                    text, calls, finish = held(list(chunks))
            else:
                choice = client.chat.completions.create(
                    model="m", messages=messages, tools=[CODE_TOOL]
                ).choices[0]
                text, finish = choice.message.content or "", choice.finish_reason
                calls = [
                    (call.id, call.function.name, call.function.arguments)
                    for call in choice.message.tool_calls or ()
                ]
            finishes.append(finish)
            messages = answered(messages, text, calls)
    assert finishes == ["tool_calls", "stop"]
    assert messages[-1]["content"].endswith(f"#### {problem.prints}")


@pytest.mark.parametrize("stream", [False, True])
async def test_async_client_solves_a_problem_over_several_turns(url: str, stream: bool) -> None:
    messages: list[Any] = OTHER.messages()
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        for _ in range(2):
            if stream:
                async with await client.chat.completions.create(
                    model="m", messages=messages, tools=[CODE_TOOL], stream=True
                ) as chunks:
                    text, calls, _ = held([chunk async for chunk in chunks])
            else:
                answer = await client.chat.completions.create(
                    model="m", messages=messages, tools=[CODE_TOOL]
                )
                message = answer.choices[0].message
                text = message.content or ""
                calls = [
                    (call.id, call.function.name, call.function.arguments)
                    for call in message.tool_calls or ()
                ]
            messages = answered(messages, text, calls)
    assert messages[-1]["content"].endswith(f"#### {OTHER.ground_truth}")


def test_completions_and_models_work(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["fake-model"]
        answer = client.completions.create(model="m", prompt="What?", max_tokens=5)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("<thin", "length")
        with client.completions.create(
            model="m", prompt="What?", max_tokens=5, stream=True
        ) as chunks:
            assert "".join(chunk.choices[0].text for chunk in chunks) == "<thin"


def test_refusals_raise_the_errors_of_the_client(url: str) -> None:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        with pytest.raises(openai.BadRequestError, match="Messages cannot be empty"):
            client.chat.completions.create(model="m", messages=[])
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            client.models.retrieve("nope")
