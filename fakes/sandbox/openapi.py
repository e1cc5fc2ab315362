"""The OpenAPI description of what is served."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.sandbox.schema import Model
from sfusion_tools._version import __version__

_COMMAND = {
    "title": "CommandRunResult",
    "type": "object",
    "required": ["status"],
    "properties": {
        "status": {"type": "string", "enum": ["Finished", "Error", "TimeLimitExceeded"]},
        "execution_time": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "return_code": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "stdout": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "stderr": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
}
_STATUS = {"type": "string", "enum": ["Success", "Failed", "SandboxError"]}
_MAYBE_COMMAND = {"anyOf": [{"$ref": "#/components/schemas/CommandRunResult"}, {"type": "null"}]}
_POD = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_FILES = {"type": "object", "additionalProperties": {"type": "string"}}
_RUN_CODE_RESPONSE = {
    "title": "RunCodeResponse",
    "type": "object",
    "required": ["status", "message"],
    "properties": {
        "status": _STATUS,
        "message": {"type": "string"},
        "compile_result": _MAYBE_COMMAND,
        "run_result": _MAYBE_COMMAND,
        "executor_pod_name": _POD,
        "files": _FILES,
    },
}
_CELL = {
    "title": "CellRunResult",
    "type": "object",
    "required": ["stdout", "stderr", "display", "error"],
    "properties": {
        "stdout": {"type": "string"},
        "stderr": {"type": "string"},
        "display": {"type": "array", "items": {"type": "object"}},
        "error": {"type": "array", "items": {"type": "object"}},
    },
}
_RUN_JUPYTER_RESPONSE = {
    "title": "RunJupyterResponse",
    "type": "object",
    "required": ["status", "message"],
    "properties": {
        "status": _STATUS,
        "message": {"type": "string"},
        "driver": _MAYBE_COMMAND,
        "cells": {"type": "array", "items": {"$ref": "#/components/schemas/CellRunResult"}},
        "executor_pod_name": _POD,
        "files": _FILES,
    },
}
_VALIDATION = {
    "title": "HTTPValidationError",
    "type": "object",
    "required": ["detail"],
    "properties": {
        "detail": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "loc", "msg", "input"],
                "properties": {
                    "type": {"type": "string"},
                    "loc": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                    "msg": {"type": "string"},
                },
            },
        }
    },
}
_DETAIL = {"title": "Detail", "type": "object", "required": ["detail"], "properties": {"detail": {"type": "string"}}}


def describe(posts: dict[str, tuple[Model, str | None]], pages: dict[str, str]) -> dict[str, Any]:
    """Build the document from the POST routes (model, response schema) and the GET pages (summary)."""
    schemas: dict[str, Any] = {
        str(schema["title"]): schema
        for schema in (_COMMAND, _RUN_CODE_RESPONSE, _CELL, _RUN_JUPYTER_RESPONSE, _VALIDATION, _DETAIL)
    }
    paths: dict[str, Any] = {}
    for path, (model, response) in posts.items():
        schemas[model.name] = model.describe()
        paths[path] = {"post": _post(model, response)}
    for path, summary in pages.items():
        paths[path] = {"get": {"summary": summary, "responses": {"200": {"description": "Successful Response"}}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sandbox Fusion, faked by sfusion", "version": __version__},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _post(model: Model, response: str | None) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "400": _answer("The body cannot be parsed, or the dataset is not there", "Detail"),
        "422": _answer("Validation Error", "HTTPValidationError"),
        "500": _answer("The request holds what no answer can echo", "Detail"),
    }
    if response is not None:
        responses = {"200": _answer("Successful Response", response), **responses}
    return {
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.name}"}}},
        },
        "responses": responses,
    }


def _answer(description: str, schema: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": description, "content": {"application/json": {"schema": reference}}}
