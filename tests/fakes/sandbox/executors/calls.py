"""Shortcuts for requests to an executor."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.sandbox.executors.python import PythonExecutor
from sfusion.fakes.sandbox.protocol import (
    CommandResult,
    RunCode,
    RunCodeAnswer,
    RunJupyter,
    RunJupyterAnswer,
)


async def run(
    executor: PythonExecutor, code: str, language: str = "python", **fields: Any
) -> RunCodeAnswer:
    return await executor.run_code(RunCode(code=code, language=language, **fields))


async def ran(
    executor: PythonExecutor, code: str, language: str = "python", **fields: Any
) -> CommandResult:
    """Run a program that compiles, and return its run result."""
    answer = await run(executor, code, language, **fields)
    assert answer.run_result is not None, answer
    return answer.run_result


async def cells(executor: PythonExecutor, *texts: str, **fields: Any) -> RunJupyterAnswer:
    return await executor.run_jupyter(RunJupyter(cells=list(texts), **fields))
