"""Bodies as in FastAPI 0.103.

From bytes to validated fields or a refusal, and from results to an answer. Content
faults make well-formed answers with wrong content.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from json.encoder import encode_basestring as quoted
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from sfusion_tools.bounded_input import levels

from ..faults import ContentFault, Output, SandboxError, Timeout
from ..wire.app import DEEPEST_JSON, Refused, deeper_than, is_json, json_invalid
from ..wire.message import Answer, dump_json
from .protocol import (
    DEFAULT_TIMEOUT,
    DEFAULT_TOTAL_TIMEOUT,
    DRIVER_GRACE,
    CommandResult,
    RunCodeAnswer,
    RunJupyterAnswer,
)

T = TypeVar("T")
Problem = dict[str, Any]

_URL = "https://errors.pydantic.dev/2.6/v/"
_NOT_FINITE = "Out of range float values are not JSON compliant"
"""Newer versions of Python add the value to this message; the real server's does not."""
_DEEP = 400
"""Nesting beyond which it matters how much stack is left.

Chosen: well below Python's limit of 1,000, of which callers have used some.
"""
_DEEPEST_ECHO = 968
"""Deepest nesting of an input that a 422 can echo.

A limit of the real server: with one more level, encoding it runs out of stack.
"""
DECODE_ERROR = (
    "[DecodeError] 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"
)
ADDED = "y"
"""The character that ``huge`` adds, which ``{fill:N}`` of a program has not."""
_PLACEHOLDER = "\ufdd0sfusion-not-utf8\ufdd0"
_NOT_UTF8 = b"\xff\xfe\xfa"


def check_body(body: bytes, content_type: str | None, model: type[BaseModel]) -> dict[str, Any]:
    """Validate a body and return its fields; raise Refused."""
    value = parse_body(body, content_type)
    if value is None:
        missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
        raise Refused(refuse([missing | {"url": f"{_URL}missing"}]))
    try:
        return model.model_validate(value, from_attributes=True).__dict__
    except ValidationError as error:
        problems: list[Problem] = [
            {**found, "loc": ("body", *found["loc"]), "url": _URL + found["type"]}
            for found in error.errors(include_url=False)
        ]
        raise Refused(refuse(problems)) from None


def parse_body(body: bytes, content_type: str | None) -> Any:
    """The JSON value, or the raw bytes for another content type; None for an empty body."""
    if not body:
        return None
    # The usual headers first: the general parser costs more than everything else here.
    if content_type and content_type != "application/json" and not is_json(content_type):
        return body
    try:
        deep = deeper_than(body, _DEEP)
        value = on_fresh_stack(lambda: json.loads(body)) if deep else _decode(body)
    except json.JSONDecodeError as error:
        if deeper_than(body[: error.pos], DEEPEST_JSON):
            raise Refused(unparsable()) from None
        raise Refused(refuse([json_invalid(error)])) from None
    except (ValueError, RecursionError):
        raise Refused(unparsable()) from None
    if deep and deeper_than(body, DEEPEST_JSON):
        raise Refused(unparsable())
    return value


def _decode(body: bytes) -> Any:
    try:
        return from_json(body)
    except ValueError:
        # The real server uses json.loads, which accepts more, and whose words the answer quotes.
        return json.loads(body)


def unparsable() -> Answer:
    """The answer to bytes that are not text, or to excessive nesting."""
    return Answer(status=400, body=b'{"detail":"There was an error parsing the body"}')


def refuse(problems: list[Problem]) -> Answer:
    """The 422, or the 500 of the real server when it cannot encode the input it echoes."""
    try:
        content = {"detail": [echo(problem) for problem in problems]}
        if levels(content) > _DEEP:
            return on_fresh_stack(lambda: Answer.json(content, status=422))
        return Answer.json(content, status=422)
    except UnicodeError as error:
        return server_error(error, str(error))
    except RecursionError as error:
        return server_error(error, "maximum recursion depth exceeded while encoding a JSON object")
    except ValueError as error:
        return server_error(error, _NOT_FINITE)


def render(answer: RunCodeAnswer | RunJupyterAnswer) -> Answer:
    """The HTTP answer of an executor as the real server sends it.

    It has every key, nulls included, in the real server's order.
    """
    try:
        if isinstance(answer, RunCodeAnswer):
            return Answer(body=_run_code_text(answer).encode())
        return Answer.json(asdict(answer))
    except UnicodeError as error:
        # A lone surrogate, for example in code that a message quotes, cannot be sent; the real
        # server fails on it.
        return server_error(error, str(error))
    except ValueError as error:
        return server_error(error, _NOT_FINITE)


def _run_code_text(answer: RunCodeAnswer) -> str:
    """Formatted by hand: this is the hot path of the fake."""
    files = "{}"
    if answer.files:
        files = json.dumps(answer.files, ensure_ascii=False, separators=(",", ":"))
    return (
        f'{{"status":"{answer.status}",'
        f'"message":{quoted(answer.message)},'
        f'"compile_result":{_command_text(answer.compile_result)},'
        f'"run_result":{_command_text(answer.run_result)},'
        f'"executor_pod_name":{_text_or_null(answer.executor_pod_name)},'
        f'"files":{files}}}'
    )


def _command_text(result: CommandResult | None) -> str:
    if result is None:
        return "null"
    seconds = result.execution_time
    if seconds is not None and not math.isfinite(seconds):
        raise ValueError(_NOT_FINITE)
    return (
        f'{{"status":"{result.status}",'
        f'"execution_time":{_number_or_null(seconds)},'
        f'"return_code":{_number_or_null(result.return_code)},'
        f'"stdout":{_text_or_null(result.stdout)},'
        f'"stderr":{_text_or_null(result.stderr)}}}'
    )


def _text_or_null(text: str | None) -> str:
    return "null" if text is None else quoted(text)


def _number_or_null(number: float | None) -> str:
    return "null" if number is None else repr(number)


def on_fresh_stack(work: Callable[[], T]) -> T:
    """Run something deeply recursive in a new thread, where no caller has used up the stack."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(work).result()


def echo(problem: Problem) -> Problem:
    """A problem that JSON can represent: bytes become text."""
    value = problem["input"]
    if isinstance(value, bytes):
        return {**problem, "input": value.decode()}
    if isinstance(value, dict | list) and levels(value) > _DEEPEST_ECHO:
        raise RecursionError
    return problem


def server_error(error: BaseException, detail: str) -> Answer:
    """The real server's answer to a bug of its own, without paths of this machine."""
    # Lone surrogates, which UTF-8 cannot encode, are escaped.
    detail = detail.encode("utf-8", "backslashreplace").decode()
    lines = ["Traceback (most recent call last):", f"{type(error).__name__}: {detail}", ""]
    # Starlette raises the error again after this answer, and uvicorn then closes without announcing
    # it.
    return Answer(status=500, body=dump_json({"detail": detail, "traceback": lines}), close=True)


def spoil(
    path: str, fields: dict[str, Any], answer: Answer | None, action: ContentFault
) -> tuple[Answer, float]:
    """The spoiled answer, and how many seconds a fault that strikes during the run takes."""
    jupyter = path == "/run_jupyter"
    match action:
        case SandboxError():
            return sandbox_error(action.message, jupyter=jupyter), 0.0
        case Timeout():
            limit = _time_limit(fields, jupyter=jupyter)
            return timeout(action.stdout, limit, jupyter=jupyter), limit
        case Output() if answer is not None:
            return spoil_output(answer, action), 0.0
    return answer or Answer.json({}), 0.0


def _time_limit(fields: dict[str, Any], *, jupyter: bool) -> float:
    """Seconds after which the real server stops what a request runs."""
    if jupyter:
        limit = _number(fields, "total_timeout", DEFAULT_TOTAL_TIMEOUT) + DRIVER_GRACE
    else:
        limit = _number(fields, "run_timeout", DEFAULT_TIMEOUT)
    return max(0.0, limit)


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
    """Lose, null, cut, inflate or garble what was printed.

    Answers without output stay as they are.
    """
    try:
        body = json.loads(answer.body)
    except ValueError:
        return answer
    streams = ("stdout", "stderr") if action.stream == "both" else (action.stream,)
    change = OUTPUT_CHANGES[action.what]
    for result in _results(body):
        for stream in streams:
            if stream in result:
                result[stream] = change(result[stream] or "", action.size)
    return answer.with_body(dump_json(body).replace(_PLACEHOLDER.encode(), _NOT_UTF8))


def _results(body: Any) -> Iterator[dict[str, Any]]:
    """Yield the parts of an answer that hold output: of the program, or of each cell."""
    if not isinstance(body, dict):
        return
    if isinstance(body.get("run_result"), dict):
        yield body["run_result"]
    for cell in body.get("cells") or ():
        if isinstance(cell, dict):
            yield cell


OUTPUT_CHANGES: dict[str, Callable[[str, int], str | None]] = {
    "lost": lambda text, size: "",
    "null": lambda text, size: None,
    "cut": lambda text, size: text[:size],
    "huge": lambda text, size: text + ADDED * size,
    "not_utf8": lambda text, size: text + _PLACEHOLDER,
    "decode_error": lambda text, size: DECODE_ERROR,
}
"""What each kind of ``Output`` makes of a stream."""
