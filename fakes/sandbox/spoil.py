"""Content faults: well-formed HTTP answers with wrong content."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import Any

from sfusion.fakes.faults import ContentFault, Output, SandboxError, Timeout
from sfusion.fakes.sandbox.body import render
from sfusion.fakes.sandbox.protocol import CommandResult, RunCodeAnswer, RunJupyterAnswer
from sfusion.fakes.wire.message import Answer, dump_json

DECODE_ERROR = "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
ADDED = "y"
"""The character that ``huge`` adds, which ``{fill:N}`` of a program has not."""
_PLACEHOLDER = "\ufdd0sfusion-not-utf8\ufdd0"
_NOT_UTF8 = b"\xff\xfe\xfa"


def spoil(path: str, fields: dict[str, Any], answer: Answer | None, action: ContentFault) -> tuple[Answer, float]:
    """The spoiled answer, and how many seconds a fault that strikes during the run takes."""
    jupyter = path == "/run_jupyter"
    match action:
        case SandboxError():
            return sandbox_error(action.message, jupyter=jupyter), 0.0
        case Timeout():
            limit = _number(fields, "total_timeout", 45.0) + 10.0 if jupyter else _number(fields, "run_timeout", 10.0)
            limit = max(0.0, limit)
            return timeout(action.stdout, limit, jupyter=jupyter), limit
        case Output() if answer is not None:
            return spoil_output(answer, action), 0.0
    return answer or Answer.json({}), 0.0


def _number(fields: dict[str, Any], key: str, default: float) -> float:
    """A number of the request, which behind a proxy nobody has checked."""
    try:
        number = float(fields[key])
    except (KeyError, TypeError, ValueError):
        return default
    return number if math.isfinite(number) else default


def sandbox_error(message: str, *, jupyter: bool = False) -> Answer:
    """The answer of the real server when it fails itself."""
    if jupyter:
        return render(RunJupyterAnswer("SandboxError", message))
    failed = None
    if message.startswith("exception on running command"):
        failed = CommandResult("Error", stderr=message)
    return render(RunCodeAnswer("SandboxError", message, None, failed))


def timeout(stdout: str, limit: float, *, jupyter: bool = False) -> Answer:
    """The answer of the real server when the time limit was exceeded."""
    result = CommandResult("TimeLimitExceeded", limit, None, stdout, "")
    if jupyter:
        return render(RunJupyterAnswer("Failed", "", result))
    return render(RunCodeAnswer("Failed", "", None, result))


def spoil_output(answer: Answer, action: Output) -> Answer:
    """Lose, null, cut, inflate or garble what was printed; answers without output stay as they are."""
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    streams = ("stdout", "stderr") if action.stream == "both" else (action.stream,)
    for result in _results(body):
        for stream in streams:
            if stream in result:
                result[stream] = _CHANGES[action.what](result[stream] or "", action.size)
    return answer.with_body(dump_json(body).replace(_PLACEHOLDER.encode(), _NOT_UTF8))


def _results(body: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(body, dict):
        return
    if isinstance(body.get("run_result"), dict):
        yield body["run_result"]
    for cell in body.get("cells") or ():
        if isinstance(cell, dict):
            yield cell


_CHANGES: dict[str, Callable[[str, int], str | None]] = {
    "lost": lambda text, size: "",
    "null": lambda text, size: None,
    "cut": lambda text, size: text[:size],
    "huge": lambda text, size: text + ADDED * size,
    "not_utf8": lambda text, size: text + _PLACEHOLDER,
    "decode_error": lambda text, size: DECODE_ERROR,
}
