"""The published SDK, synchronous and asynchronous, against the fake that runs code."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from tests.lazy import Lazy

sdk: Any = Lazy("sandbox_fusion")


@pytest.fixture
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox(executor="python") as fake:
        yield fake


def request(code: str, language: str = "python", **fields: object) -> sdk.RunCodeRequest:
    return sdk.RunCodeRequest(code=code, language=language, **fields)


def test_sdk_runs_a_program_with_files(sandbox: FakeSandbox) -> None:
    code = "text = open('in').read()\nopen('out', 'w').write(text.upper())\nprint(input())"
    asked = request(
        code, stdin="hi", files={"in": base64.b64encode(b"abc").decode()}, fetch_files=["out"]
    )
    answer = sdk.run_code(asked, endpoint=sandbox.url, max_attempts=1)
    assert answer.status == sdk.RunStatus.Success
    assert answer.run_result.stdout == "hi\n"
    assert base64.b64decode(answer.files["out"]) == b"ABC"


def test_summaries_describe_failures(sandbox: FakeSandbox) -> None:
    mapping = sdk.SummaryMapping(Success="fine", Failed="bad", RunTimeout="slow")
    codes = [
        ("pass", 60.0, "fine"),
        ("raise SystemExit(1)", 60.0, "bad"),
        ("while True: pass", 0.5, "slow"),
    ]
    for code, timeout, summary in codes:
        answer = sdk.run_code(
            request(code, run_timeout=timeout), endpoint=sandbox.url, max_attempts=1
        )
        assert sdk.summary_run_code_result(answer, mapping) == summary


def test_a_sandbox_error_is_raised(sandbox: FakeSandbox) -> None:
    with pytest.raises(Exception, match="leaves "):
        sdk.run_code(request("pass", files={"/etc/x": ""}), endpoint=sandbox.url, max_attempts=1)


def test_sdk_runs_a_notebook(sandbox: FakeSandbox) -> None:
    pytest.importorskip("ipykernel")
    asked = sdk.RunJupyterRequest(cells=["a = 20", "a + 1", "raise ValueError('no')", "print(a)"])
    answer = sdk.run_jupyter(asked, endpoint=sandbox.url, max_attempts=1)
    assert answer.status == sdk.RunStatus.Success
    assert answer.cells[1].display == [{"text/plain": "21"}]
    assert answer.cells[2].error[0]["evalue"] == "no"
    assert answer.cells[3].stdout == "20\n"


def test_many_requests_run_concurrently(sandbox: FakeSandbox) -> None:
    kwargs = [
        {"request": request(f"print({number})"), "endpoint": sandbox.url} for number in range(20)
    ]
    answers = sdk.run_concurrent(sdk.run_code, kwargs=kwargs, concurrency=8)
    assert [answer.run_result.stdout for answer in answers] == [
        f"{number}\n" for number in range(20)
    ]


async def test_sdk_runs_programs_and_notebooks_asynchronously() -> None:
    pytest.importorskip("ipykernel")
    async with FakeSandbox(executor="python") as sandbox:
        asked = [request("echo $((6 * 7))", "bash"), request("import sys; sys.exit(4)")]
        answers = await asyncio.gather(
            *(sdk.run_code_async(one, endpoint=sandbox.url, max_attempts=1) for one in asked),
            sdk.run_jupyter_async(
                sdk.RunJupyterRequest(cells=["1"]), endpoint=sandbox.url, max_attempts=1
            ),
        )
    assert answers[0].run_result.stdout == "42\n"
    assert answers[1].run_result.return_code == 4
    assert answers[2].cells[0].display == [{"text/plain": "1"}]
