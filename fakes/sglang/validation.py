"""Validates bodies with the messages of FastAPI and sglang's error handler."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sfusion.fakes.errors import FakeSGLangError
from sfusion.fakes.sglang.completions import error_answer
from sfusion.fakes.wire import Answer
from sfusion.fakes.wire.app import is_json, json_invalid

T = TypeVar("T")

Detail = dict[str, Any]


class Refused(FakeSGLangError):
    """Raised for a request that is not valid, with the answer to it."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _invalid(details: list[Detail], where: str) -> Refused:
    """For a body that does not fit its model."""
    count = f"{len(details)} validation error{'s' if len(details) != 1 else ''}:"
    lines = "".join(f"\n  {detail}" for detail in details)
    return Refused(error_answer(f"{count}{lines}{where} {details}", "Bad Request"))


def endpoint(method: str, path: str) -> str:
    """Return the lines that name the endpoint in an error."""
    if path.startswith("/v1/"):
        # The real text names a file of the server, which the recordings leave blank.
        return f'\n\n  File "<server file>", line N, in <endpoint>\n    {method} {path}'
    return f"\n\n  Endpoint: {method} {path}"


def read_body(adapter: TypeAdapter[T], data: bytes, content_type: str | None, where: str) -> T:
    """Return the body as its model; raises :class:`Refused`. Only decodes JSON, like FastAPI."""
    body: Any = data
    if data and (not content_type or is_json(content_type)):
        body = _decode(data, where)
    if not data or body is None:
        raise _invalid([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}], where)
    try:
        return adapter.validate_python(body, from_attributes=True)
    except ValidationError as error:
        raise _invalid(_details(error, ("body",)), where) from None
    except AttributeError as error:
        # The real validators expect an object, and fail with a plain 500 for anything else.
        raise Refused(Answer.text("Internal Server Error", status=500)) from error


def read_query(adapter: TypeAdapter[T], value: str, name: str, where: str) -> T:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _invalid(_details(error, ("query", name)), where) from None


def check_content_type(content_type: str | None) -> None:
    """Raise Refused unless the content type is JSON."""
    if (content_type or "").lower().split(";", 1)[0] != "application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise _invalid([{"loc": ["header", "content-type"], "msg": message, "type": "value_error"}], "")


def _decode(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        raise _invalid([json_invalid(error)], where) from None
    except (ValueError, RecursionError) as error:
        raise Refused(error_answer("There was an error parsing the body", "400")) from error


def _details(error: ValidationError, prefix: tuple[str, ...]) -> list[Detail]:
    return [{**found, "loc": (*prefix, *found["loc"])} for found in error.errors(include_url=False)]
