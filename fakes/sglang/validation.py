"""Refusing a body the way FastAPI and sglang's error handler word it."""

from __future__ import annotations

import json
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from sfusion.fakes.errors import FakeSGLangError

T = TypeVar("T")

Detail = dict[str, Any]


class Invalid(FakeSGLangError):
    """A body that does not fit its model; the text is the one that the client gets to read."""

    def __init__(self, details: list[Detail], where: str) -> None:
        count = f"{len(details)} validation error{'s' if len(details) != 1 else ''}:"
        lines = "".join(f"\n  {detail}" for detail in details)
        super().__init__(f"{count}{lines}{where} {details}")


class Unreadable(FakeSGLangError):
    """A body that is not even text."""


class Unanswerable(FakeSGLangError):
    """A body over which the real server stumbles."""


def endpoint(method: str, path: str) -> str:
    """The lines that say which endpoint refused."""
    if path.startswith("/v1/"):
        # The real text names a file of the server; the recordings blank it, and so do we.
        return f'\n\n  File "<server file>", line N, in <endpoint>\n    {method} {path}'
    return f"\n\n  Endpoint: {method} {path}"


def read_body(adapter: TypeAdapter[T], data: bytes, content_type: str | None, where: str) -> T:
    """The body as its model, or :class:`Invalid`. Only JSON is decoded, as FastAPI does it."""
    body: Any = None
    if data:
        body = data if not _is_json(content_type) else _decode(data, where)
    if body is None:
        raise Invalid([{"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}], where)
    try:
        return adapter.validate_python(body, from_attributes=True)
    except ValidationError as error:
        raise Invalid(_details(error, ("body",)), where) from None
    except AttributeError as error:
        # The real validators take an object for granted, and anything else ends in a plain 500.
        raise Unanswerable(str(error)) from None


def read_query(adapter: TypeAdapter[T], value: str, name: str, where: str) -> T:
    """One query parameter."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise Invalid(_details(error, ("query", name)), where) from None


def check_content_type(content_type: str | None) -> None:
    """The OpenAI routes take nothing but JSON."""
    if (content_type or "").lower().split(";", 1)[0] != "application/json":
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        raise Invalid([{"loc": ["header", "content-type"], "msg": message, "type": "value_error"}], "")


def _is_json(content_type: str | None) -> bool:
    if not content_type:
        return True
    kind = content_type.split(";", 1)[0].strip().lower()
    main, _, sub = kind.partition("/")
    return main == "application" and (sub == "json" or sub.endswith("+json"))


def _decode(data: bytes, where: str) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        detail = {
            "type": "json_invalid",
            "loc": ("body", error.pos),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": error.msg},
        }
        raise Invalid([detail], where) from None
    except (ValueError, RecursionError) as error:
        raise Unreadable("There was an error parsing the body") from error


def _details(error: ValidationError, prefix: tuple[str, ...]) -> list[Detail]:
    return [{**found, "loc": (*prefix, *found["loc"])} for found in error.errors(include_url=False)]
