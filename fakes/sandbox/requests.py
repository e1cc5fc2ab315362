"""The requests of the real server, field by field in its order."""

from __future__ import annotations

from typing import Any

from sfusion.fakes.sandbox.profile import Profile
from sfusion.fakes.sandbox.schema import (
    Anything,
    Boolean,
    Choice,
    DictOf,
    Float,
    Integer,
    ListOf,
    Maybe,
    Model,
    OneOf,
    Text,
    Type,
)

# fmt: off
LANGUAGES = (
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket",
)
# fmt: on

_TEXT, _NUMBER, _INTEGER = Text(), Float(), Integer()
_LANGUAGE = Choice(LANGUAGES)

_RUN_CODE: dict[str, Type | tuple[Type, Any]] = {
    "compile_timeout": (_NUMBER, 10.0),
    "run_timeout": (_NUMBER, 10.0),
    "memory_limit_MB": (_INTEGER, -1),
    "code": _TEXT,
    "stdin": (Maybe(_TEXT), None),
    "language": _LANGUAGE,
    "files": (DictOf(Maybe(_TEXT)), {}),
    "fetch_files": (ListOf(_TEXT), []),
}
_RUN_JUPYTER: dict[str, Type | tuple[Type, Any]] = {
    "cells": ListOf(_TEXT),
    # Whole numbers, unlike values that are sent: the driver's input.json shows the difference.
    "cell_timeout": (_NUMBER, 0),
    "total_timeout": (_NUMBER, 45),
    "memory_limit_MB": (_INTEGER, -1),
    "kernel": (Choice(["python3"]), "python3"),
    "files": (DictOf(_TEXT), {}),
    "fetch_files": (ListOf(_TEXT), []),
}


RUN_CODE = Model(_RUN_CODE, name="RunCodeRequest")
RUN_JUPYTER = Model(_RUN_JUPYTER, name="RunJupyterRequest")


def _without_memory_limit(fields: dict[str, Type | tuple[Type, Any]], name: str) -> Model:
    """The published image ignores this field like any that it does not know: it came some days later."""
    return Model({key: kind for key, kind in fields.items() if key != "memory_limit_MB"}, name=name)


RUNS: dict[Profile, tuple[Model, Model]] = {
    "2026-07": (RUN_CODE, RUN_JUPYTER),
    "2025-06": (
        _without_memory_limit(_RUN_CODE, "RunCodeRequest"),
        _without_memory_limit(_RUN_JUPYTER, "RunJupyterRequest"),
    ),
}
"""The models of ``/run_code`` and ``/run_jupyter``."""

_PROVIDED = OneOf(
    {
        "list[dict[str,any]]": (list, ListOf(DictOf(Anything()))),
        "dict[str,any]": (dict, DictOf(Anything())),
    }
)
_TEST_CONFIG = Model(
    {
        "dataset_type": (Maybe(_TEXT), None),
        "language": (Maybe(_LANGUAGE), None),
        "locale": (Maybe(_TEXT), None),
        "is_fewshot": (Maybe(Boolean()), None),
        "compile_timeout": (Maybe(_NUMBER), None),
        "run_timeout": (Maybe(_NUMBER), None),
        "custom_extract_logic": (Maybe(_TEXT), None),
        "provided_data": (Maybe(_PROVIDED), None),
        "extra": (DictOf(Anything()), {}),
    },
    name="TestConfig",
)
_ID = OneOf({"int": (int, _INTEGER), "str": (str, _TEXT)})

GET_PROMPTS = Model(
    {
        "dataset": _TEXT,
        "config": _TEST_CONFIG,
        "offset": (_INTEGER, 0),
        "limit": (_INTEGER, 1000000),
    },
    name="GetPromptsRequest",
)
GET_PROMPT_BY_ID = Model({"dataset": _TEXT, "config": _TEST_CONFIG, "id": _ID}, name="GetPromptByIdRequest")
SUBMIT = Model({"dataset": _TEXT, "id": _ID, "completion": _TEXT, "config": _TEST_CONFIG}, name="SubmitRequest")
GET_METRICS = Model({"dataset": _TEXT, "config": _TEST_CONFIG, "results": ListOf(Anything())}, name="GetMetricsRequest")
GET_METRICS_FUNCTION = Model({"dataset": _TEXT, "config": _TEST_CONFIG}, name="GetMetricsFunctionRequest")
