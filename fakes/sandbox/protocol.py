"""What passes between the server and an executor: validated requests in, answers out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

Profile = Literal["2026-07", "2025-06"]
PROFILES: tuple[Profile, ...] = get_args(Profile)


_DEFAULTS: dict[str, Any] = {
    "code": "", "language": "python", "compile_timeout": 10.0, "run_timeout": 10.0, "memory_limit_MB": -1,
    "stdin": None, "files": {}, "fetch_files": [],
}  # fmt: skip
_TEXTS = ("code", "stdin", "files", "fetch_files")


def sent_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a request asks for as a journal keeps it: fields that are not as by default, texts as digests."""
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
    compile_timeout: float = 10.0
    run_timeout: float = 10.0
    memory_limit_MB: int = -1
    stdin: str | None = None
    files: dict[str, str | None] = field(default_factory=dict)
    fetch_files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CommandResult:
    """How one command (the compiler, the program, the notebook driver) ended. Field order is the wire's."""

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
        """The result of the image of June 2025 if a program ends before its standard input is written."""
        transport = f"<WriteUnixTransport closed=True reading=False 0x{address:x}>"
        return cls.failed(command, f"unable to perform operation on {transport}; the handler is closed")


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
        return any(
            one is not None and one.status == "TimeLimitExceeded" for one in (self.compile_result, self.run_result)
        )


@dataclass(frozen=True, slots=True)
class RunJupyter:
    """A validated request to ``/run_jupyter``, with the real server's defaults."""

    cells: list[str]
    cell_timeout: float = 0
    total_timeout: float = 45
    memory_limit_MB: int = -1
    kernel: str = "python3"
    files: dict[str, str | None] = field(default_factory=dict)
    fetch_files: list[str] = field(default_factory=list)

    def driver_config(self) -> str:
        """The text that the real server writes for the driver of the notebook, and that the driver prints."""
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
        """Stop whatever is still running."""
