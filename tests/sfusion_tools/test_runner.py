"""The runner beneath tools and rewards: code in, a typed result out, from coroutines and from
threads."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion_tools import CodeRunner, Outcome
from sfusion_tools.errors import ConfigError, GuardTripped
from sfusion_tools.sandbox import Program


@pytest.fixture(scope="module")
def python():
    with FakeSandbox(executor="python") as sandbox:
        yield sandbox


def make(sandbox: FakeSandbox, **settings: Any) -> CodeRunner:
    quick = {
        "limiter": "local",
        "limiter_name": uuid4().hex,
        "backoff_base": 0.001,
        "memory_limit_mb": -1,
    }
    return CodeRunner(sandbox.url, **quick | settings)


async def test_code_becomes_a_result_with_its_facts(python):
    runner = make(python)
    result = await runner.run("print(int(input()) + 1)", stdin="41", call_id="mine")
    assert (result.outcome, result.stdout, result.text, result.lost) == (
        Outcome.OK,
        "42\n",
        "42\n",
        False,
    )
    assert (result.call_id, len(result.attempts), result.metrics()["outcome"]) == ("mine", 1, "ok")
    failed = await runner.run("raise SystemExit(3)")
    assert (failed.outcome, failed.text) == (
        Outcome.PROGRAM_ERROR,
        "[The program exited with code 3.]",
    )
    slow = await runner.run("while True: pass", timeout=0.2)
    assert (slow.outcome, slow.text) == (
        Outcome.PROGRAM_TIMEOUT,
        "[The program timed out after 0.2 s; it had printed nothing.]",
    )
    assert (await runner.run("echo 7", language="bash")).stdout == "7\n"
    assert (await runner.run(Program("print(1)", memory_limit_mb=-1))).stdout == "1\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"code": " "}, "`code` is empty"),
        ({"code": None}, "`code` must be a string"),
        ({"code": "1", "language": "pythn"}, "did you mean 'python'?"),
        ({"code": "1", "timeout": -1}, "`timeout` must be a number"),
        ({"code": "1", "stdin": "\ud800"}, "`stdin` contains a lone surrogate"),
    ],
)
async def test_arguments_that_cannot_be_used_are_a_result(python, arguments, says):
    result = await make(python).run(**arguments)
    assert (result.outcome, result.lost, result.attempts) == (Outcome.BAD_ARGUMENTS, False, [])
    assert says in result.text


async def test_a_caller_may_choose_what_a_model_may_not(python):
    runner = make(python, max_timeout=0.1, default_timeout=0.1)
    asked = {"code": "import time; time.sleep(0.3); print(1)", "timeout": 20}
    assert (await runner.run(**asked)).text == "1\n"
    assert "`timeout` 20 was lowered to 0.1 s" in (await runner.call(asked)).text
    assert "is not offered here" in (await runner.call({"code": "echo", "language": "bash"})).text


async def test_a_failure_of_the_sandbox_is_a_result_that_is_lost():
    async with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox:
        result = await make(sandbox, max_attempts=2).run("print(1)")
    assert (result.outcome, result.lost, len(result.attempts)) == (Outcome.SANDBOX_ERROR, True, 2)
    assert "This is not output of a program" in result.text


def test_threads_share_connections_and_the_limit():
    with FakeSandbox() as sandbox:
        runner = make(sandbox, rate_limit=3)
        with ThreadPoolExecutor(8) as threads:
            code = '1  # sfusion:call=c{} seconds=0.02 prints="1"'
            done = [threads.submit(runner.run_sync, code.format(n), timeout=5) for n in range(16)]
            assert {future.result().text for future in done} == {"1"}
        assert sandbox.ledger.peak_in_flight == 3
        assert asyncio.run(_in_a_loop(runner)) == "2"


async def _in_a_loop(runner: CodeRunner) -> str:
    return runner.run_sync('1  # sfusion:call=x prints="2"').text


def test_a_forked_child_runs_in_a_loop_of_its_own():
    with FakeSandbox() as sandbox:
        runner = make(sandbox)
        code = '1  # sfusion:call=x prints="2"'
        assert runner.run_sync(code).text == "2"
        child = os.fork()
        if child == 0:
            os._exit(0 if runner.run_sync(code).text == "2" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_guard_stops_a_blocking_caller_too():
    guard = {"window": 1, "min_calls": 1, "then": "fail"}
    with FakeSandbox(faults=[{"what": {"status": 503}}]) as sandbox, pytest.raises(GuardTripped):
        make(sandbox, guard=guard, max_attempts=1).run_sync("1")


def test_a_wrong_setting_is_refused():
    with pytest.raises(
        ConfigError, match=r"CodeRunner: unknown key 'rate_limt'; did you mean 'rate_limit'\?"
    ):
        CodeRunner("http://127.0.0.1:1", rate_limt=1)
