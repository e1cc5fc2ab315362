"""The published SDK, synchronous and asynchronous, against the scripted fake."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.lazy import Lazy

sdk: Any = Lazy("sandbox_fusion")

HELLO = '# sfusion:call=hello prints="hello\\n"\nprint("hello")'


@pytest.fixture
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as fake:
        yield fake


def request(code: str = HELLO, **fields: Any) -> sdk.RunCodeRequest:
    return sdk.RunCodeRequest(code=code, language="python", **fields)


def test_sdk_runs_a_program(sandbox: FakeSandbox) -> None:
    answer = sdk.run_code(request(), endpoint=sandbox.url, max_attempts=1)
    assert answer.status == sdk.RunStatus.Success
    assert answer.run_result.stdout == "hello\n"


def test_files_are_sent_and_fetched(sandbox: FakeSandbox) -> None:
    files = {"a.txt": base64.b64encode(b"content").decode()}
    answer = sdk.run_code(
        request(files=files, fetch_files=["a.txt"]), endpoint=sandbox.url, max_attempts=1
    )
    assert answer.files == files


def test_sdk_runs_a_notebook(sandbox: FakeSandbox) -> None:
    cells = sdk.RunJupyterRequest(cells=[HELLO, '# sfusion:call=b raises="ValueError: x"'])
    answer = sdk.run_jupyter(cells, endpoint=sandbox.url, max_attempts=1)
    assert answer.status == sdk.RunStatus.Success
    assert answer.cells[0].stdout == "hello\n"
    assert answer.cells[1].error[0]["ename"] == "ValueError"


def test_sdk_runs_many_programs_concurrently(sandbox: FakeSandbox) -> None:
    codes = [f'# sfusion:call=c{number} prints="{number}" seconds=0.01' for number in range(50)]
    answers = sdk.run_concurrent(
        sdk.run_code,
        kwargs=[{"request": request(code), "endpoint": sandbox.url} for code in codes],
        concurrency=16,
    )
    assert [answer.run_result.stdout for answer in answers] == [str(number) for number in range(50)]
    assert sandbox.ledger.finished == 50


def test_sdk_uses_the_endpoint_that_was_set(sandbox: FakeSandbox) -> None:
    before = sdk.config.SANDBOX_ENDPOINT
    sdk.set_sandbox_endpoint(sandbox.url)
    try:
        assert sdk.run_code(request(), max_attempts=1).run_result.stdout == "hello\n"
    finally:
        sdk.set_sandbox_endpoint(before)


def test_failing_gateway_raises_in_the_sdk(sandbox: FakeSandbox) -> None:
    sandbox.set_faults([{"what": {"status": 429, "retry_after": 1}}])
    with pytest.raises(Exception, match="Faas api responded with code 429"):
        sdk.run_code(request(), endpoint=sandbox.url, max_attempts=1)
    sandbox.set_faults([{"what": {"sandbox_error": "out of pods"}}])
    with pytest.raises(Exception, match="Sandbox responded with error: out of pods"):
        sdk.run_code(request(), endpoint=sandbox.url, max_attempts=1)


def test_unknown_dataset_is_refused_as_by_the_real_server(sandbox: FakeSandbox) -> None:
    wanted = sdk.GetPromptsRequest(dataset="nope", config=sdk.TestConfig())
    with pytest.raises(Exception, match=r"code 400: .*no eval class found for dataset nope"):
        sdk.get_prompts(wanted, endpoint=sandbox.url)


async def test_sdk_runs_a_program_asynchronously() -> None:
    async with FakeSandbox() as sandbox:
        answers = await asyncio.gather(
            *(
                sdk.run_code_async(request(), endpoint=sandbox.url, max_attempts=1)
                for _ in range(20)
            )
        )
    assert {answer.run_result.stdout for answer in answers} == {"hello\n"}


async def test_sdk_runs_a_notebook_asynchronously() -> None:
    async with FakeSandbox() as sandbox:
        cells = sdk.RunJupyterRequest(cells=[HELLO])
        answer = await sdk.run_jupyter_async(cells, endpoint=sandbox.url, max_attempts=1)
    assert answer.cells[0].stdout == "hello\n"
