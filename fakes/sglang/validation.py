"""Validates bodies with the messages of FastAPI and sglang's error handler."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from ..wire.app import DEEPEST_JSON, Refused, Request, deeper_than, is_json, json_invalid
from ..wire.message import SURROGATES, Answer
from .completions import error_answer

T = TypeVar("T")

Detail = dict[str, Any]
Place = tuple[str | int, ...]
"""Where in a body something is."""

_adapter: Callable[[Any], TypeAdapter[Any]] = functools.cache(TypeAdapter)


def _invalid(details: list[Detail], where: str) -> Refused:
    """For a body that does not fit its model."""
    ending = "" if len(details) == 1 else "s"
    heading = f"{len(details)} validation error{ending}:"
    lines = "".join(f"\n  {detail}" for detail in details)
    return Refused(error_answer(f"{heading}{lines}{where} {details}", "Bad Request"))


def _endpoint(request: Request) -> str:
    """Return the lines that name the endpoint in an error."""
    route = f"{request.method} {request.path}"
    if request.path.startswith("/v1/"):
        # The real text names a file of the server, which the recordings leave blank.
        return f'\n\n  File "<server file>", line N, in <endpoint>\n    {route}'
    return f"\n\n  Endpoint: {route}"


def read_body(model: type[T], request: Request) -> T:
    """Return the body as its model; raises :class:`Refused`. Only decodes JSON, like FastAPI."""
    body: Any = request.body
    where = _endpoint(request)
    content_type = request.headers.get("Content-Type")
    if body and (not content_type or is_json(content_type)):
        body = _decode(body, where)
    if body is None or body == b"":
        missing = {"type": "missing", "loc": ("body",), "msg": "Field required", "input": None}
        raise _invalid([missing], where)

    try:
        read: T = _adapter(model).validate_python(body, from_attributes=True)
    except ValidationError as error:
        raise _invalid(_details(error, ("body",)), where) from None
    except AttributeError as error:
        # The real validators expect an object, and fail with a plain 500 for anything else.
        raise Refused(Answer.text("Internal Server Error", status=500)) from error
    return read


def read_json_body(model: type[T], request: Request) -> T:
    """Return the body of a request to an OpenAI route, which must be declared as JSON."""
    media_type, _, _ = request.headers.get("Content-Type", "").lower().partition(";")
    if media_type != "application/json":
        wrong = {
            "loc": ["header", "content-type"],
            "msg": "Unsupported Media Type: Only 'application/json' is allowed",
            "type": "value_error",
        }
        raise _invalid([wrong], where="")
    return read_body(model, request)


def read_query(kind: Any, value: str, name: str, request: Request) -> Any:
    """Return a parameter of the query as its type; raises :class:`Refused`."""
    try:
        return _adapter(kind).validate_python(value)
    except ValidationError as error:
        raise _invalid(_details(error, ("query", name)), _endpoint(request)) from None


def _decode(data: bytes, where: str) -> Any:
    """Decode JSON that is not nested too deeply; raises :class:`Refused`."""
    try:
        if deeper_than(data, DEEPEST_JSON):
            raise RecursionError
        body = json.loads(data)
        if b"\\u" in data or b"\xed" in data:  # the only ways to write a surrogate
            _refuse_surrogates(body, where)
        return body
    except json.JSONDecodeError as error:
        raise _invalid([json_invalid(error)], where) from None
    except (ValueError, RecursionError) as error:
        raise Refused(error_answer("There was an error parsing the body", "400")) from error


def _refuse_surrogates(body: Any, where: str) -> None:
    """Refuse text that UTF-8 cannot represent: no tokenizer takes it, and no answer can quote it.

    The real server fails at the first of these, each in its own way.
    """
    for place, text in _texts(body, ("body",)):
        if any(code in SURROGATES for code in map(ord, text)):
            wrong = {
                "type": "string_unicode",
                "loc": place,
                "msg": "Input should be a valid string, unable to parse raw data as a "
                "unicode string",
                "input": text,
            }
            raise _invalid([wrong], where)


def _texts(value: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every text in a JSON value with its place, the keys of objects included."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield place, key
            yield from _texts(item, (*place, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _texts(item, (*place, number))


def _details(error: ValidationError, prefix: tuple[str, ...]) -> list[Detail]:
    """Return what is wrong, with places that begin with ``prefix``."""
    problems = error.errors(include_url=False)
    return [{**problem, "loc": (*prefix, *problem["loc"])} for problem in problems]
