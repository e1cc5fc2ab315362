"""The requests of the real server as pydantic models, field by field in its order."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, Field, create_model
from pydantic_core import PydanticKnownError

from sfusion.fakes.sandbox.protocol import Profile

# fmt: off
Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript", "sql", "rust", "cuda",
    "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit", "kotlin_script", "jest", "verilog",
    "python_gpu", "lean", "swift", "racket",
]
# fmt: on
LANGUAGES: tuple[str, ...] = get_args(Language)
_FLOAT_TEXT = re.compile(r"[+-]?(?:inf|infinity|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE | re.ASCII)
_INT_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_ZERO_FRACTION = re.compile(r"\.0*\Z", re.ASCII)
_LONGEST_INT = 4300
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What UTF-8 cannot encode; pydantic itself refuses it in a number."""


def _without_underscores(text: str) -> str:
    return text if text.startswith("_") or text.endswith("_") or "__" in text else text.replace("_", "")


def _float_in_text(value: Any) -> Any:
    """Read a number in a text as pydantic 2.6 of the real server does; other versions accept other texts."""
    if not isinstance(value, str) or _SURROGATE.search(value):
        return value
    if not _FLOAT_TEXT.fullmatch(text := _without_underscores(value)):
        raise PydanticKnownError("float_parsing")
    return float(text)


def _int_in_text(value: Any) -> Any:
    """Read a whole number in a text as pydantic 2.6 does."""
    if not isinstance(value, str) or _SURROGATE.search(value):
        return value
    if len(value) > _LONGEST_INT:
        raise PydanticKnownError("int_parsing_size")
    for text in (_without_underscores(value), _ZERO_FRACTION.sub("", value)):
        if _INT_TEXT.fullmatch(text):
            return int(text)
    raise PydanticKnownError("int_parsing")


Float = Annotated[float, BeforeValidator(_float_in_text)]
Integer = Annotated[int, BeforeValidator(_int_in_text)]


class RunCodeRequest(BaseModel):
    compile_timeout: Float = 10.0
    run_timeout: Float = 10.0
    memory_limit_MB: Integer = -1
    code: str
    stdin: str | None = None
    language: Language
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class RunJupyterRequest(BaseModel):
    cells: list[str]
    # Whole numbers, unlike values that are sent: the driver's input.json shows the difference.
    cell_timeout: Float = 0
    total_timeout: Float = 45
    memory_limit_MB: Integer = -1
    kernel: Literal["python3"] = "python3"
    files: dict[str, str] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


def _without_memory_limit(model: type[BaseModel]) -> type[BaseModel]:
    """The published image ignores this field like any that it does not know: it came some days later."""
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in model.model_fields.items() if name != "memory_limit_MB"
    }
    return create_model(model.__name__, **fields)


RUNS: dict[Profile, tuple[type[BaseModel], type[BaseModel]]] = {
    "2026-07": (RunCodeRequest, RunJupyterRequest),
    "2025-06": (_without_memory_limit(RunCodeRequest), _without_memory_limit(RunJupyterRequest)),
}
"""The models of ``/run_code`` and ``/run_jupyter``."""


class TestConfig(BaseModel):
    dataset_type: str | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: Float | None = None
    run_timeout: Float | None = None
    custom_extract_logic: str | None = None
    provided_data: list[dict[str, Any]] | dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class GetMetricsFunctionRequest(BaseModel):
    dataset: str
    config: TestConfig


class GetPromptsRequest(GetMetricsFunctionRequest):
    offset: Integer = 0
    limit: Integer = 1000000


class GetPromptByIdRequest(GetMetricsFunctionRequest):
    id: int | str


class GetMetricsRequest(GetMetricsFunctionRequest):
    results: list[Any]


class SubmitRequest(BaseModel):
    dataset: str
    id: int | str
    completion: str
    config: TestConfig
