"""The OpenAPI description of what is served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import JsonSchemaMode

from sfusion_tools._version import __version__

_REFERENCE = "#/components/schemas/{model}"


@dataclass
class Detail:
    detail: str


@dataclass
class ValidationDetail:
    type: str
    loc: list[str | int]
    msg: str


@dataclass
class HTTPValidationError:
    detail: list[ValidationDetail]


def describe(posts: dict[str, tuple[type[BaseModel], type | None]], pages: dict[str, str]) -> dict[str, Any]:
    """Build the document from the POST routes (body, answer) and the GET pages (summary)."""
    schemas: dict[str, Any] = {}

    def content(kind: type) -> dict[str, Any]:
        mode: JsonSchemaMode = "validation" if issubclass(kind, BaseModel) else "serialization"
        schema = TypeAdapter(kind).json_schema(ref_template=_REFERENCE, mode=mode)
        schemas.update(schema.pop("$defs", {}), **{kind.__name__: schema})
        return {"content": {"application/json": {"schema": {"$ref": _REFERENCE.format(model=kind.__name__)}}}}

    paths: dict[str, Any] = {}
    for path, (model, answer) in posts.items():
        answers = {
            "200": ("Successful Response", answer),
            "400": ("The body cannot be parsed, or the dataset is not there", Detail),
            "422": ("Validation Error", HTTPValidationError),
            "500": ("The request holds what no answer can echo", Detail),
        }
        responses = {status: {"description": text, **content(kind)} for status, (text, kind) in answers.items() if kind}
        paths[path] = {"post": {"requestBody": {"required": True, **content(model)}, "responses": responses}}
    for path, summary in pages.items():
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "Successful Response"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sandbox Fusion, faked by sfusion", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }
