"""Answers of executors as the real server writes them: every key, nulls too, in its order."""

from __future__ import annotations

from typing import Any

from fakes.sandbox.body import server_error
from fakes.sandbox.protocol import CommandResult, RunCodeAnswer, RunJupyterAnswer
from fakes.wire import Answer


def render_run_code(answer: RunCodeAnswer) -> Answer:
    """The HTTP answer to ``/run_code``."""
    return _render(
        {
            "status": answer.status,
            "message": answer.message,
            "compile_result": _command(answer.compile_result),
            "run_result": _command(answer.run_result),
            "executor_pod_name": answer.executor_pod_name,
            "files": answer.files,
        }
    )


def render_run_jupyter(answer: RunJupyterAnswer) -> Answer:
    """The HTTP answer to ``/run_jupyter``."""
    cells = [
        {"stdout": cell.stdout, "stderr": cell.stderr, "display": cell.display, "error": cell.error}
        for cell in answer.cells
    ]
    return _render(
        {
            "status": answer.status,
            "message": answer.message,
            "driver": _command(answer.driver),
            "cells": cells,
            "executor_pod_name": answer.executor_pod_name,
            "files": answer.files,
        }
    )


def _command(result: CommandResult | None) -> dict[str, Any] | None:
    if result is None:
        return None
    return {
        "status": result.status,
        "execution_time": result.execution_time,
        "return_code": result.return_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


def _render(body: dict[str, Any]) -> Answer:
    try:
        return Answer.json(body)
    except UnicodeError as error:
        # A lone surrogate, for example of the code in a message, cannot be sent; the real server fails over it.
        return server_error(error, str(error))
    except ValueError as error:
        return server_error(error, "Out of range float values are not JSON compliant")
