"""Findings about memory, output, languages, packages and timeouts, on servers that really run
programs."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.protocol import CommandResult, RunCode, RunCodeAnswer
from sfusion.harness.real.doctor.settings import PACKAGES, Plan
from tests.harness.real.doctor.servers import (
    PATIENT,
    QUICK,
    Changed,
    breaking,
    examined,
    ids,
    no_limits_possible,
    only,
    scripted,
    seen,
    severity,
)
from tests.sfusion_tools.sandbox.helpers import virtually

START = ("connection", "ping", "run_code")


async def test_memory_limits_that_cannot_be_set_break_training() -> None:
    async with FakeSandbox(executor=Changed(no_limits_possible)) as sandbox:
        result = await examined(sandbox.url)
        assert breaking(result) == ["memory-limit-breaks"]
        text = seen(result, "memory-limit-breaks")
        assert "with memory_limit_MB 1024 the same one fails" in text
        assert "Exception occurred in preexec_fn." in text
        assert any("memory_limit_mb: -1" in finding.change for finding in result.findings)
        assert "run_timeout" in result.examined, "the other checks run without a limit"
        without = await examined(
            sandbox.url, checks=only(*START, "memory limit"), memory_limit_mb=-1
        )
        assert breaking(without) == []


async def test_a_limit_too_small_for_python_breaks_training() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        result = await examined(sandbox.url, checks=only(*START, "memory limit"), memory_limit_mb=4)
        assert breaking(result) == ["memory-limit-breaks"]
        assert "memory_limit_MB 4" in seen(result, "memory-limit-breaks")


async def test_limits_that_prevent_threads_hurt() -> None:
    checks = only(*START, "memory limit")
    async with FakeSandbox(executor="python") as sandbox:
        for limit in (1024, 65536):
            result = await examined(sandbox.url, checks=checks, memory_limit_mb=limit)
            assert ids(result) == {"no-threads-under-limit"}
            assert severity(result, "no-threads-under-limit") == "hurts"
            assert "RuntimeError: can't start new thread" in seen(result, "no-threads-under-limit")
        assert ids(await examined(sandbox.url, checks=checks, memory_limit_mb=-1)) == set()


def small_stacks(request: RunCode) -> RunCode:
    """A server that limits the address space but not the stack."""
    if request.memory_limit_MB <= 0:
        return request
    size = request.memory_limit_MB * 2**20
    limits = f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({size}, {size}))\n"
    return replace(request, memory_limit_MB=-1, code=limits + request.code)


async def test_a_limit_too_small_for_numpy_hurts(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(
        "import mmap\ntables = mmap.mmap(-1, 700 * 2**20, mmap.MAP_PRIVATE)\n"
    )
    executor = Changed(small_stacks, env={"PYTHONPATH": str(tmp_path)})
    async with FakeSandbox(executor=executor) as sandbox:
        checks = only(*START, "memory limit")
        result = await examined(sandbox.url, checks=checks, memory_limit_mb=600)
        assert ids(result) == {"memory-limit-too-small"}
        assert severity(result, "memory-limit-too-small") == "hurts"
        assert "Cannot allocate memory" in seen(result, "memory-limit-too-small")
        assert ids(await examined(sandbox.url, checks=checks, memory_limit_mb=4096)) == set()


async def test_an_unenforced_limit_hurts_and_identifies_the_old_image() -> None:
    checks = only(*START, "memory limit", "server version")
    async with FakeSandbox(executor="python", profile="2025-06") as sandbox:
        result = await examined(sandbox.url, checks=checks)
        assert ids(result) == {"memory-limit-ignored", "server-version"}
        assert severity(result, "memory-limit-ignored") == "hurts"
        assert "2025-06" in seen(result, "server-version")
    async with FakeSandbox(executor="python") as sandbox:
        result = await examined(sandbox.url, checks=checks, memory_limit_mb=-1)
        assert ids(result) == {"server-version"}
        assert "2026-07" in seen(result, "server-version")


async def test_the_output_limit_is_measured() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        plan = replace(QUICK, timed_out_after=5.0)  # enough for the programs that are not blocked
        result = await examined(sandbox.url, plan, checks=only(*START, "long output"))
        assert ids(result) == {"stdout-cut"}
        assert severity(result, "stdout-cut") == "hurts"
        text = seen(result, "stdout-cut")
        assert (
            "200,000 bytes arrive complete; 400,000 bytes end as a Success with 219,264 "
            "bytes of output"
        ) in text
        assert "1,000,000 bytes end as a TimeLimitExceeded" in text
        assert result.measured["output_bytes"] == 219_264
        # What arrives beyond the pipe varies from run to run, so the advice is the size that always
        # arrives.
        looped = result.measured["output_bytes_of_short_prints"]
        assert 131_072 <= looped < 200_000
        assert f"of 200,000 bytes in short prints, {looped:,} arrive" in text
        change = result.findings[0].change
        assert "less than 131,072 bytes" in change
        assert "may vary from run to run" in change


async def test_cutting_ordinary_output_breaks_training() -> None:
    cuts = {"code": "doctor-output", "what": {"output": {"what": "cut", "size": 1000}}}
    async with FakeSandbox(executor="python", faults=[cuts]) as sandbox:
        result = await examined(sandbox.url, checks=only(*START, "long output"))
        assert breaking(result) == ["stdout-cut"]
        assert "20,000 bytes end as a Success with 1,000 bytes of output" in seen(
            result, "stdout-cut"
        )


async def test_no_finding_if_long_output_arrives_complete() -> None:
    def prints_all(request: RunCode) -> RunCode | RunCodeAnswer:
        found = re.search(r"(?:range\((\d+)\): print\()?'x' \* (\d+)", request.code)
        if found is None:
            return request
        stdout = (
            "x" * int(found[2])
            if found[1] is None
            else ("x" * int(found[2]) + "\n") * int(found[1])
        )
        return RunCodeAnswer("Success", "", None, CommandResult("Finished", 0.1, 0, stdout, ""))

    async with FakeSandbox(executor=Changed(prints_all)) as sandbox:
        result = await examined(sandbox.url, checks=only(*START, "long output"))
        assert ids(result) == set()
        assert result.measured["output_bytes"] == 1_000_000


@pytest.fixture
def bare_path(tmp_path: Path) -> str:
    """A directory that contains only Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    return str(folder)


async def test_a_missing_required_language_breaks_training(bare_path: str) -> None:
    async with FakeSandbox(executor=PythonExecutor(path=bare_path)) as sandbox:
        checks = only(*START, "languages")
        result = await examined(sandbox.url, checks=checks, default_language="go")
        assert breaking(result) == ["missing-language"]
        assert seen(result, "missing-language") == "go: the sandbox has no 'go'"
        offered = await examined(sandbox.url, checks=checks, languages=("go",))
        assert breaking(offered) == ["missing-language"], "a model may choose it"
        asked = await examined(sandbox.url, replace(PATIENT, languages=["lua"]), checks=checks)
        assert seen(asked, "missing-language") == "lua: /bin/bash: line 1: lua: command not found"
        others = await examined(sandbox.url, PATIENT, checks=checks)
        assert ids(others) == {"languages"}
        assert severity(others, "languages") == "note"
        assert others.measured["languages"] == ["python", "bash"], (
            "bash is started by its full path"
        )


async def test_a_language_without_a_runner_counts_as_missing() -> None:
    async with scripted() as sandbox:
        result = await examined(
            sandbox.url, checks=only(*START, "languages"), default_language="sql"
        )
        assert breaking(result) == ["missing-language"]
        assert "'sql'" in seen(result, "missing-language")


@pytest.mark.skipif(shutil.which("g++") is None, reason="this machine has no C++ compiler")
async def test_an_installed_language_is_not_reported() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        result = await examined(
            sandbox.url, QUICK, checks=only(*START, "languages"), default_language="cpp"
        )
        assert ids(result) == set()
        assert result.measured["languages"] == ["cpp"]


async def test_missing_required_packages_break_training() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        checks = only(*START, "packages")
        required = replace(PATIENT, packages=["json", "surely_not_there", "os.nor_this"])
        result = await examined(sandbox.url, required, checks=checks)
        assert breaking(result) == ["missing-packages"]
        assert (
            seen(result, "missing-packages")
            == "cannot be imported: surely_not_there, os.nor_this; available: json"
        )
        assert (
            ids(await examined(sandbox.url, replace(PATIENT, packages=["json"]), checks=checks))
            == set()
        )


async def test_missing_usual_packages_hurt(tmp_path: Path) -> None:
    naked = tmp_path / "python"
    naked.write_text(f'#!/bin/bash\nexec {sys.executable} -I -S "$@"\n')
    naked.chmod(0o755)
    async with FakeSandbox(executor=PythonExecutor(path=str(tmp_path))) as sandbox:
        result = await examined(sandbox.url, PATIENT, checks=only(*START, "packages"))
        assert severity(result, "missing-packages") == "hurts"
        assert seen(result, "missing-packages") == f"cannot be imported: {', '.join(PACKAGES)}"


async def test_an_unenforced_run_timeout_breaks_training() -> None:
    async with FakeSandbox(
        executor=Changed(lambda request: replace(request, run_timeout=60.0))
    ) as sandbox:
        plan = replace(QUICK, timed_out_after=0.3)
        result = await examined(sandbox.url, plan, checks=only(*START, "run_timeout"))
        assert breaking(result) == ["run-timeout-ignored"]
        assert "with run_timeout 0.3 ran to its end" in seen(result, "run-timeout-ignored")


@virtually
async def test_no_answer_at_the_run_timeout_breaks_training() -> None:
    hangs = {"code": "doctor-clock", "what": {"hang": True}}
    async with scripted(faults=[hangs]) as sandbox:
        result = await examined(
            sandbox.url, Plan(patience=1.0, timed_out_after=0.1), checks=only(*START, "run_timeout")
        )
        assert breaking(result) == ["run-timeout-ignored"]
        assert "had no answer after" in seen(result, "run-timeout-ignored")


async def test_an_enforced_run_timeout_is_not_reported() -> None:
    async with FakeSandbox(executor="python") as sandbox:
        assert ids(await examined(sandbox.url, checks=only(*START, "run_timeout"))) == set()
