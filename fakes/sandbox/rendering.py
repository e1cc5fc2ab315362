"""Encoding the answers of executors as the real server does: every key, nulls included, in its order."""

from __future__ import annotations

import json
from json.encoder import encode_basestring as quoted
from math import isfinite
from typing import Any

from sfusion.fakes.sandbox.body import server_error
from sfusion.fakes.sandbox.protocol import CommandResult, RunCodeAnswer, RunJupyterAnswer
from sfusion.fakes.wire import Answer


def render_run_code(answer: RunCodeAnswer) -> Answer:
    """The HTTP answer to ``/run_code``, formatted by hand: this is the hot path of the fake."""
    ran, compiled = answer.run_result, answer.compile_result
    pod = "null" if answer.executor_pod_name is None else quoted(answer.executor_pod_name)
    files = "{}" if not answer.files else json.dumps(answer.files, ensure_ascii=False, separators=(",", ":"))
    try:
        text = (
            f'{{"status":"{answer.status}","message":{quoted(answer.message)},'
            f'"compile_result":{"null" if compiled is None else _command_text(compiled)},'
            f'"run_result":{"null" if ran is None else _command_text(ran)},'
            f'"executor_pod_name":{pod},"files":{files}}}'
        )
        return Answer(body=text.encode())
    except UnicodeError as error:
        # A lone surrogate, in code quoted by a message for example, cannot be sent; the real server fails on it.
        return server_error(error, str(error))
    except ValueError as error:
        return server_error(error, str(error))


def _command_text(result: CommandResult) -> str:
    took, code, out, err = result.execution_time, result.return_code, result.stdout, result.stderr
    if took is not None and not isfinite(took):
        raise ValueError("Out of range float values are not JSON compliant")
    return (
        f'{{"status":"{result.status}","execution_time":{"null" if took is None else repr(took)},'
        f'"return_code":{"null" if code is None else code},'
        f'"stdout":{"null" if out is None else quoted(out)},"stderr":{"null" if err is None else quoted(err)}}}'
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
        return server_error(error, str(error))
    except ValueError as error:
        return server_error(error, "Out of range float values are not JSON compliant")
