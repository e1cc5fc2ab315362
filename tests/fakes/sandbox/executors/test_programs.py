"""Exit codes, input, output and timeouts of programs are those of the real server."""

from __future__ import annotations

import asyncio
import base64
import math
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sfusion.fakes.errors import NoProgramRuns
from sfusion.fakes.sandbox.executors.python import PythonExecutor, command
from sfusion.fakes.sandbox.executors.python import executor as executors
from tests.fakes.sandbox.executors.calls import ran, run


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("raise SystemExit(2)", 2),
        ("raise SystemExit(-1)", 255),
        ("raise SystemExit(257)", 1),
        ("raise SystemExit(True)", 1),
        ("import os; os._exit(42)", 42),
        *[
            (f"import os; os.kill(os.getpid(), {number})", -number)
            for number in (1, 2, 3, 10, 14, 15, 24)
        ],
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
    ],
)
async def test_exit_codes_and_signals_are_reported(
    executor: PythonExecutor, code: str, expected: int
) -> None:
    answer = await run(executor, code)
    assert answer.status == "Failed"
    assert answer.run_result is not None
    assert (answer.run_result.status, answer.run_result.return_code) == ("Finished", expected)


@pytest.mark.parametrize("timeout", [0.0, -1.0, -math.inf])
async def test_a_timeout_of_zero_or_less_runs_nothing(
    executor: PythonExecutor, timeout: float
) -> None:
    answer = await run(executor, "open('a', 'w')", run_timeout=timeout, fetch_files=["a"])
    assert answer.status == "Failed"
    assert answer.run_result is not None
    assert answer.run_result.status == "TimeLimitExceeded"
    assert answer.run_result.return_code is None
    assert answer.files == {}


async def test_an_infinite_timeout_is_accepted(executor: PythonExecutor) -> None:
    assert (await ran(executor, "print(1)", run_timeout=math.inf)).stdout == "1\n"


async def test_a_nan_timeout_is_a_sandbox_error(executor: PythonExecutor) -> None:
    answer = await run(executor, "print(1)", run_timeout=math.nan)
    assert answer.status == "SandboxError"
    assert answer.message.startswith("exception on running command python /")
    assert answer.message.endswith(": cannot convert float NaN to integer | None")
    assert answer.run_result is not None
    assert (answer.run_result.status, answer.run_result.stdout) == ("Error", None)
    assert answer.run_result.stderr == answer.message


async def test_a_timeout_keeps_the_flushed_output_of_both_streams(executor: PythonExecutor) -> None:
    code = (
        "import sys, time\nprint('out', flush=True)\nprint('err', "
        "file=sys.stderr)\nprint('lost')\ntime.sleep(60)"
    )
    result = await ran(executor, code, run_timeout=5.0)
    assert (result.status, result.stdout, result.stderr) == ("TimeLimitExceeded", "out\n", "err\n")


LATE = """import select, sys
sys.path.insert(0, sys.argv[1])
from guard import keeper, zygote
waiting = keeper.Keeper._wait
def late(self, *more):
    return select.select([self._ended], [], []) and waiting(self, *more)
keeper.Keeper._wait = late
zygote.main()
"""
"""A guard that gets no time until the program has ended."""


async def test_the_execution_time_is_a_float_that_covers_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_BOOT", LATE)
    executor = PythonExecutor()
    try:
        result = await ran(executor, "import time; time.sleep(0.1)")
    finally:
        await executor.aclose()
    assert isinstance(result.execution_time, float)
    assert result.execution_time >= 0.1


@pytest.mark.parametrize("stdin", [None, ""])
async def test_without_input_stdin_is_empty(executor: PythonExecutor, stdin: str | None) -> None:
    assert (
        await ran(executor, "import sys; print(repr(sys.stdin.read()))", stdin=stdin)
    ).stdout == "''\n"


async def test_large_input_arrives_complete(executor: PythonExecutor) -> None:
    text = "é" * 1_000_000
    result = await ran(executor, "import sys; print(len(sys.stdin.buffer.read()))", stdin=text)
    assert result.stdout == "2000000\n"


async def test_unread_input_is_ignored(executor: PythonExecutor) -> None:
    assert (await run(executor, "print(1)", stdin="x" * 1_000_000)).status == "Success"


async def test_input_that_cannot_be_encoded_is_dropped(executor: PythonExecutor) -> None:
    assert (await ran(executor, "print(len(input()))", stdin="\udcff")).return_code == 1


@pytest.fixture
def climbing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The directory of this Python by a path with `..`, by which it seems to have been started."""
    path = str(tmp_path / os.path.relpath(sys.executable, tmp_path))
    assert os.pardir in path
    assert os.path.samefile(path, sys.executable)
    monkeypatch.setattr(sys, "executable", path)
    return os.path.dirname(path)


async def test_python_is_found_if_it_was_started_by_a_path_that_climbs(climbing: str) -> None:
    """Programs with a /tmp of their own do not see the directories on the way."""
    for given in (None, f"{climbing}:/usr/bin:/bin"):
        executor = PythonExecutor(path=given)
        try:
            assert (await ran(executor, "print(1)")).stdout == "1\n"
        finally:
            await executor.aclose()


async def test_an_executor_whose_python_does_not_run_says_so_instead_of_failing_every_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho no library >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setattr(executors, "default_path", lambda: str(tmp_path))
    executor = PythonExecutor()
    try:
        with pytest.raises(NoProgramRuns, match=r"ended with exit code 127: no library; PATH is "):
            await executor.confinement()
        answer = await run(executor, "print(1)")
    finally:
        await executor.aclose()
    assert answer.status == "SandboxError"
    assert "the python executor cannot run programs here" in answer.message


async def test_a_missing_runtime_is_command_not_found(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    executor = PythonExecutor(path=str(tmp_path_factory.mktemp("empty")))
    try:
        for language, command in {
            "python": "python",
            "R": "Rscript",
            "typescript": "tsx",
            "php": "php",
        }.items():
            answer = await run(executor, "1", language)
            assert answer.compile_result is None
            assert answer.run_result is not None
            assert answer.run_result.return_code == 127
            assert answer.run_result.stderr == f"/bin/bash: line 1: {command}: command not found\n"
        for language, command in {
            "cpp": "g++",
            "java": "javac",
            "verilog": "iverilog",
            "cuda": "mkdir",
        }.items():
            answer = await run(executor, "1", language)
            assert answer.run_result is None
            assert answer.compile_result is not None
            assert answer.compile_result.return_code == 127
            assert f"{command}: command not found\n" in (answer.compile_result.stderr or "")
    finally:
        await executor.aclose()


async def test_a_scala_program_without_an_object_is_refused_in_the_compile_step(
    executor: PythonExecutor,
) -> None:
    answer = await run(executor, "println(1)", "scala")
    assert (answer.status, answer.message, answer.run_result) == (
        "SandboxError",
        "Object name not found.",
        None,
    )
    assert answer.compile_result is not None
    assert (answer.compile_result.status, answer.compile_result.return_code) == ("Error", 1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no g++")
async def test_after_a_compile_error_nothing_runs(executor: PythonExecutor) -> None:
    answer = await run(executor, "int main() { return nothing; }", "cpp")
    assert (answer.status, answer.message, answer.run_result) == ("Failed", "", None)
    assert answer.compile_result is not None
    assert answer.compile_result.return_code == 1
    assert "nothing" in (answer.compile_result.stderr or "")


async def test_exceeding_the_memory_limit_is_an_ordinary_failure(executor: PythonExecutor) -> None:
    result = await ran(executor, "bytearray(2**30)", memory_limit_MB=200)
    assert result.return_code == 1
    assert (result.stderr or "").endswith("MemoryError\n")


async def test_an_impossible_memory_limit_is_a_sandbox_error(executor: PythonExecutor) -> None:
    answer = await run(executor, "print(1)", memory_limit_MB=10**14)
    assert answer.status == "SandboxError"
    assert answer.message.endswith(": Exception occurred in preexec_fn. | None")


async def test_programs_share_nothing_with_each_other(executor: PythonExecutor) -> None:
    code = "import os; print(sorted(n for n in os.listdir('.')), end=''); open('mine', 'w')"
    first, second = [await ran(executor, code) for _ in range(2)]
    assert "mine" not in (second.stdout or "")
    assert (first.stdout or "").count(".py") == (second.stdout or "").count(".py") == 1


async def test_many_programs_run_concurrently(executor: PythonExecutor) -> None:
    results = await asyncio.gather(*(ran(executor, f"print({number})") for number in range(24)))
    assert [result.stdout for result in results] == [f"{number}\n" for number in range(24)]


async def test_running_out_of_descriptors_is_a_temporary_sandbox_error(
    executor: PythonExecutor,
) -> None:
    assert (await run(executor, "true", "bash")).status == "Success"
    await asyncio.gather(*map(asyncio.wrap_future, list(executor._removals)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/dev/fd"))
    for spare in range(2, 9):
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + spare, hard))
        try:
            answer = await run(executor, "true", "bash")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert answer.status == "Success" or "Too many open files" in answer.message
    await asyncio.gather(
        *map(asyncio.wrap_future, list(executor._removals))
    )  # they open directories
    assert len(os.listdir("/dev/fd")) <= open_now
    assert (await run(executor, "true", "bash")).status == "Success"


async def test_the_published_image_ignores_memory_limits() -> None:
    executor = PythonExecutor(profile="2025-06")
    try:
        assert (
            await ran(executor, "print(len(bytearray(2**28)))", memory_limit_MB=64)
        ).stdout == f"{2**28}\n"
    finally:
        await executor.aclose()


async def test_the_published_image_fails_if_a_program_ends_before_its_input_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    executor = PythonExecutor(profile="2025-06")
    try:
        alone = await run(executor, "true", "bash", stdin="x")
        assert alone.status == "Success"
        with monkeypatch.context() as patch:
            patch.setattr(
                command, "SPAWN_STALL", 60.0
            )  # however slow this machine is, they end earlier
            together = await asyncio.gather(
                *(run(executor, "true", "bash", stdin="x") for _ in range(16))
            )
        assert {answer.status for answer in together} == {"SandboxError"}
        message = together[0].message
        assert (
            "unable to perform operation on <WriteUnixTransport closed=True reading=False 0x"
            in message
        )
        assert message.endswith(">; the handler is closed | None")
        reading = await asyncio.gather(*(ran(executor, "cat", "bash", stdin="x") for _ in range(8)))
        assert [result.stdout for result in reading] == ["x"] * 8
    finally:
        await executor.aclose()


async def test_a_program_that_runs_alone_may_end_before_its_input_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = asyncio.wait
    executor = PythonExecutor(profile="2025-06")
    try:
        # A loop that gets no time: whatever is waited for has ended.
        monkeypatch.setattr(asyncio, "wait", lambda futures, timeout=None: real(futures))
        assert (await run(executor, "true", "bash", stdin="x")).status == "Success"
    finally:
        await executor.aclose()


@pytest.mark.skipif(shutil.which("npm") is None, reason="this machine has no npm")
async def test_npm_asks_nobody_for_a_newer_npm(executor: PythonExecutor) -> None:
    asked = []

    async def registry(request: web.Request) -> web.Response:
        asked.append(request.path)
        newest = {
            "name": "npm",
            "version": "999.0.0",
            "dist": {"tarball": f"http://{request.host}/npm.tgz"},
        }
        return web.json_response(
            {"name": "npm", "dist-tags": {"latest": "999.0.0"}, "versions": {"999.0.0": newest}}
        )

    app = web.Application()
    app.router.add_get("/{path:.*}", registry)
    async with TestServer(app) as server:
        settings = f"registry={server.make_url('/')}\ncache=./cache\n"
        files = {".npmrc": base64.b64encode(settings.encode()).decode()}
        result = await ran(executor, "test('a', () => {})", "jest", files=files, run_timeout=60)
    assert "npm notice" not in (result.stderr or "")
    assert asked == []
