"""What passes between the server and an executor.

Requests as the real server validates them, and answers.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import PydanticKnownError

Profile = Literal["2026-07", "2025-06"]
PROFILES: tuple[Profile, ...] = get_args(Profile)

DEFAULT_TIMEOUT = 10.0
"""Seconds for the compiler, and for the program: the real server's default."""
DEFAULT_TOTAL_TIMEOUT = 45
"""Seconds for a notebook: the real server's default."""
DRIVER_GRACE = 10.0
"""Seconds that the real server adds to ``total_timeout`` before it stops a notebook's driver."""
NO_MEMORY_LIMIT = -1
"""The real server's default."""

_DEFAULTS: dict[str, Any] = {
    "code": "",
    "language": "python",
    "compile_timeout": DEFAULT_TIMEOUT,
    "run_timeout": DEFAULT_TIMEOUT,
    "memory_limit_MB": NO_MEMORY_LIMIT,
    "stdin": None,
    "files": {},
    "fetch_files": [],
}
_TEXTS = ("code", "stdin", "files", "fetch_files")


def sent_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request asks for as a journal keeps it.

    Fields that are not as by default, texts as digests.
    """
    found: dict[str, Any] = {}
    for key, usual in _DEFAULTS.items():
        value = fields.get(key, usual)
        if value != usual:
            found[key] = short_digest(value) if key in _TEXTS else value
    return found


def short_digest(value: Any) -> str:
    """Return a digest by which a text, or other JSON, is recognised in a journal."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


CommandStatus = Literal["Finished", "Error", "TimeLimitExceeded"]
AnswerStatus = Literal["Success", "Failed", "SandboxError"]


@dataclass(slots=True)
class RunCode:
    """A validated request to ``/run_code``, with the real server's defaults."""

    code: str
    language: str
    compile_timeout: float = DEFAULT_TIMEOUT
    run_timeout: float = DEFAULT_TIMEOUT
    memory_limit_MB: int = NO_MEMORY_LIMIT
    stdin: str | None = None
    files: dict[str, str | None] = field(default_factory=dict)
    fetch_files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CommandResult:
    """How one command (the compiler, the program, the notebook driver) ended.

    Field order is the wire's.
    """

    status: CommandStatus
    execution_time: float | None = None
    return_code: int | None = None
    stdout: str | None = None
    stderr: str | None = None

    @classmethod
    def failed(cls, command: str, why: object) -> CommandResult:
        """The result for a failure of the sandbox itself, in the words of the real server."""
        return cls("Error", stderr=f"exception on running command {command}: {why} | None")

    @classmethod
    def without_stdin(cls, command: str, address: int) -> CommandResult:
        """The result if a program ends before its standard input is written.

        Only the image of June 2025 has it.
        """
        transport = f"<WriteUnixTransport closed=True reading=False 0x{address:x}>"
        why = f"unable to perform operation on {transport}; the handler is closed"
        return cls.failed(command, why)

    @property
    def timed_out(self) -> bool:
        """Was it stopped at its time limit?"""
        return self.status == "TimeLimitExceeded"


@dataclass(slots=True)
class RunCodeAnswer:
    """The body of a ``/run_code`` answer. Field order is the wire's."""

    status: AnswerStatus
    message: str = ""
    compile_result: CommandResult | None = None
    run_result: CommandResult | None = None
    executor_pod_name: str | None = None
    files: dict[str, str] = field(default_factory=dict)

    @property
    def timed_out(self) -> bool:
        """Was the compiler or the program stopped at its time limit?"""
        results = (self.compile_result, self.run_result)
        return any(result is not None and result.timed_out for result in results)


@dataclass(frozen=True, slots=True)
class RunJupyter:
    """A validated request to ``/run_jupyter``, with the real server's defaults."""

    cells: list[str]
    cell_timeout: float = 0
    total_timeout: float = DEFAULT_TOTAL_TIMEOUT
    memory_limit_MB: int = NO_MEMORY_LIMIT
    kernel: str = "python3"
    files: dict[str, str | None] = field(default_factory=dict)
    fetch_files: list[str] = field(default_factory=list)

    def driver_config(self) -> str:
        """The text that the real server writes for the driver of the notebook.

        The driver prints it.
        """
        names = ("kernel", "cells", "cell_timeout", "total_timeout")
        return json.dumps({name: getattr(self, name) for name in names}, indent=2)


@dataclass(frozen=True, slots=True)
class CellResult:
    """The output of one notebook cell. Field order is the wire's."""

    stdout: str = ""
    stderr: str = ""
    display: list[dict[str, Any]] = field(default_factory=list)
    error: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunJupyterAnswer:
    """The body of a ``/run_jupyter`` answer. Field order is the wire's."""

    status: AnswerStatus
    message: str = ""
    driver: CommandResult | None = None
    cells: list[CellResult] = field(default_factory=list)
    executor_pod_name: str | None = None
    files: dict[str, str] = field(default_factory=dict)


class Executor(Protocol):
    """Answers requests, with or without running anything."""

    runs_code: bool
    """True when the programs of requests really run on this machine."""

    async def run_code(self, request: RunCode) -> RunCodeAnswer: ...

    async def run_jupyter(self, request: RunJupyter) -> RunJupyterAnswer: ...

    async def aclose(self) -> None:
        """Stop whatever is still running; by default nothing is."""
        return


# fmt: off
Language = Literal[
    "python", "cpp", "nodejs", "go", "go_test", "java", "php", "csharp", "bash", "typescript",
    "sql", "rust", "cuda", "lua", "R", "perl", "D_ut", "ruby", "scala", "julia", "pytest", "junit",
    "kotlin_script", "jest", "verilog", "python_gpu", "lean", "swift", "racket",
]
# fmt: on
LANGUAGES: tuple[str, ...] = get_args(Language)
_FLOAT_TEXT = re.compile(
    r"[+-]?(?:inf|infinity|nan|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)", re.IGNORECASE | re.ASCII
)
_INT_TEXT = re.compile(r"[+-]?\d+", re.ASCII)
_ZERO_FRACTION = re.compile(r"\.0*\Z", re.ASCII)
_LONGEST_INT = 4300
"""Characters of a whole number: Python's limit on digits, which pydantic has too."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What UTF-8 cannot encode; pydantic itself refuses it in a number."""


def _without_underscores(text: str) -> str:
    """Remove the underscores of a number; where they are misplaced, the text stays as it is."""
    if text.startswith("_") or text.endswith("_") or "__" in text:
        return text
    return text.replace("_", "")


def _float_in_text(value: Any) -> Any:
    """Read a number in a text as pydantic 2.6 of the real server does.

    Other versions accept other texts.
    """
    if not isinstance(value, str) or _SURROGATE.search(value):
        return value
    text = _without_underscores(value)
    if not _FLOAT_TEXT.fullmatch(text):
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


class _Request(BaseModel):
    model_config = ConfigDict(defer_build=True)


class RunCodeRequest(_Request):
    compile_timeout: Float = DEFAULT_TIMEOUT
    run_timeout: Float = DEFAULT_TIMEOUT
    memory_limit_MB: Integer = NO_MEMORY_LIMIT
    code: str
    stdin: str | None = None
    language: Language
    files: dict[str, str | None] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


class RunJupyterRequest(_Request):
    cells: list[str]
    # Whole numbers, unlike values that are sent: the driver's input.json shows the difference.
    cell_timeout: Float = 0
    total_timeout: Float = DEFAULT_TOTAL_TIMEOUT
    memory_limit_MB: Integer = NO_MEMORY_LIMIT
    kernel: Literal["python3"] = "python3"
    files: dict[str, str] = Field(default_factory=dict)
    fetch_files: list[str] = Field(default_factory=list)


def _without_memory_limit(model: type[BaseModel]) -> type[BaseModel]:
    """The same model as the published image has it.

    It ignores this field like any that it does not know: it came some days later.
    """
    fields: dict[str, Any] = {
        name: (field.annotation, field)
        for name, field in model.model_fields.items()
        if name != "memory_limit_MB"
    }
    return create_model(model.__name__, __base__=_Request, **fields)


RUNS: dict[Profile, tuple[type[BaseModel], type[BaseModel]]] = {
    "2026-07": (RunCodeRequest, RunJupyterRequest),
    "2025-06": (_without_memory_limit(RunCodeRequest), _without_memory_limit(RunJupyterRequest)),
}
"""The models of ``/run_code`` and ``/run_jupyter``."""


class TestConfig(_Request):
    dataset_type: str | None = None
    language: Language | None = None
    locale: str | None = None
    is_fewshot: bool | None = None
    compile_timeout: Float | None = None
    run_timeout: Float | None = None
    custom_extract_logic: str | None = None
    provided_data: list[dict[str, Any]] | dict[str, Any] | None = None
    extra: dict[str, Any] = Field(default_factory=dict)


class GetMetricsFunctionRequest(_Request):
    dataset: str
    config: TestConfig


class GetPromptsRequest(GetMetricsFunctionRequest):
    offset: Integer = 0
    limit: Integer = 1000000


class GetPromptByIdRequest(GetMetricsFunctionRequest):
    id: int | str


class GetMetricsRequest(GetMetricsFunctionRequest):
    results: list[Any]


class SubmitRequest(_Request):
    dataset: str
    id: int | str
    completion: str
    config: TestConfig


DATASETS: dict[str, type[BaseModel]] = {
    "/list_ids": GetPromptsRequest,
    "/get_prompts": GetPromptsRequest,
    "/get_prompt_by_id": GetPromptByIdRequest,
    "/submit": SubmitRequest,
    "/get_metrics": GetMetricsRequest,
    "/get_metrics_function": GetMetricsFunctionRequest,
}
"""The models of the routes about data sets, which run no code of the model."""
