"""Real clients through the proxy: they cannot tell it from the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sfusion.fakes.proxy import FaultProxy
from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sglang import FakeSGLangServer, ScriptedPolicy
from sfusion_tools.outcome import Outcome
from sfusion_tools.sandbox import Program, RetryPolicy, SandboxClient
from tests.lazy import Lazy

openai: Any = Lazy("openai")
sdk: Any = Lazy("sandbox_fusion")

HELLO = '# sfusion:call=hello prints="hello\\n"\nprint("hello")'


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FakeSandbox() as sandbox, FaultProxy(sandbox.url) as proxy:
        yield proxy


def test_the_sandbox_sdk_runs_code_and_notebooks(proxy: FaultProxy) -> None:
    request = sdk.RunCodeRequest(code=HELLO, language="python")
    assert sdk.run_code(request, endpoint=proxy.url, max_attempts=1).run_result.stdout == "hello\n"
    cells = sdk.RunJupyterRequest(cells=[HELLO])
    assert sdk.run_jupyter(cells, endpoint=proxy.url, max_attempts=1).cells[0].stdout == "hello\n"
    assert proxy.ledger.calls["hello"].replied == 2


def test_faults_strike_the_sandbox_sdk(proxy: FaultProxy) -> None:
    request = sdk.RunCodeRequest(code=HELLO, language="python")
    proxy.set_faults([{"phase": "after", "what": {"status": 429, "retry_after": 1}}])
    with pytest.raises(Exception, match="Faas api responded with code 429"):
        sdk.run_code(request, endpoint=proxy.url, max_attempts=1)
    proxy.set_faults([{"what": {"sandbox_error": "out of pods"}}])
    with pytest.raises(Exception, match="Sandbox responded with error: out of pods"):
        sdk.run_code(request, endpoint=proxy.url, max_attempts=1)


def test_sdk_runs_many_programs_concurrently(proxy: FaultProxy) -> None:
    codes = [f'# sfusion:call=c{number} prints="{number}" seconds=0.01' for number in range(50)]
    requests = [sdk.RunCodeRequest(code=code, language="python") for code in codes]
    answers = sdk.run_concurrent(
        sdk.run_code,
        kwargs=[{"request": one, "endpoint": proxy.url} for one in requests],
        concurrency=16,
    )
    assert [answer.run_result.stdout for answer in answers] == [str(number) for number in range(50)]
    assert proxy.ledger.snapshot()["replied"] == 50


async def test_sandbox_client_retries_attempts_that_the_proxy_breaks() -> None:
    rules = [{"first_attempts": 1, "phase": "during", "what": "reset"}]
    async with FakeSandbox() as sandbox, FaultProxy(sandbox.url, faults=rules) as proxy:
        client = SandboxClient(proxy.url, retry=RetryPolicy(base=0.001, cap=0.002))
        result = await client.run(Program(HELLO))
        await client.aclose()
    assert result.outcome is Outcome.OK
    record = proxy.ledger.calls["hello"]
    assert (record.arrived, record.forwarded, record.statuses) == (2, 2, [0, 200])


async def test_openai_sdk_works_through_the_proxy_with_and_without_streaming() -> None:
    words = "one two three four five six seven eight nine ten"
    async with (
        FakeSGLangServer(ScriptedPolicy([], otherwise=words)) as engine,
        FaultProxy(engine.url) as proxy,
        openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0) as client,
    ):
        assert [model.id async for model in client.models.list()] == ["fake-model"]
        messages = [{"role": "user", "content": "Count."}]
        whole = await client.chat.completions.create(model="fake-model", messages=messages)
        assert whole.choices[0].message.content == words
        stream = await client.chat.completions.create(
            model="fake-model", messages=messages, stream=True
        )
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces) == words
        proxy.set_faults([{"what": {"truncate": {"at": 300, "then": "reset"}}}])
        stream = await client.chat.completions.create(
            model="fake-model", messages=messages, stream=True
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
        proxy.set_faults([{"what": {"status": 503}}])
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="fake-model", messages=messages)
    assert proxy.ledger.snapshot()["replied"] == 3
