"""What a call asks a sandbox to run, and its time and size limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, get_args

Compiled = Literal[
    "cpp", "go", "java", "junit", "rust", "cuda", "python_gpu", "D_ut", "scala", "verilog", "swift",
]  # fmt: skip
RunAtOnce = Literal[
    "python", "nodejs", "php", "bash", "sql", "lua", "R", "perl", "ruby", "julia", "pytest", "jest",
    "lean", "racket", "go_test", "csharp", "kotlin_script", "typescript",
]  # fmt: skip

COMPILED: frozenset[str] = frozenset(get_args(Compiled))
"""Languages that a server compiles in a step of its own.

The step has its own time limit (``compile_timeout``) and its own part of the answer
(``compile_result``). Others, such as ``typescript`` and ``go_test``, are compiled while they run,
within the time of the program.
"""
COMPILE_TIME: frozenset[str] = COMPILED | {"csharp"}
"""Languages whose calls may take ``compile_timeout`` on top of the time of the program.

For C# a server creates a project within that time first, and does not report it.
"""
LANGUAGES: frozenset[str] = COMPILED | frozenset(get_args(RunAtOnce))
RUNNABLE = LANGUAGES - {"sql"}
"""What a model may choose. Servers accept `sql` but have no runner for it: the SandboxError would
hide a failure."""


@dataclass(slots=True)
class Program:
    """A program and the limits it runs under."""

    code: str
    language: str = "python"
    timeout: float = 30.0
    compile_timeout: float = 10.0
    memory_limit_mb: int = 1024
    stdin: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    fetch_files: Sequence[str] = ()

    def body(self) -> bytes:
        """Return the request body of ``/run_code``."""
        before = _limits(self.compile_timeout, self.timeout, self.memory_limit_mb)
        files = '{}, "fetch_files": []'
        if self.files or self.fetch_files:
            wanted = json.dumps(list(self.fetch_files))
            files = f'{json.dumps(dict(self.files))}, "fetch_files": {wanted}'
        stdin = "null" if self.stdin is None else _quoted(self.stdin)
        text = f'{before}, "code": {_quoted(self.code)}, "stdin": {stdin}'
        return f'{text}, "language": {_quoted(self.language)}, "files": {files}}}'.encode()


_quoted = json.JSONEncoder().encode
"""The JSON of a string. Encoding the request as one object takes five times as long."""


@lru_cache(maxsize=64, typed=True)
def _limits(compile_timeout: float, timeout: float, memory_limit_mb: int) -> str:
    """Return the beginning of a request, which is the same for nearly all programs of a tool."""
    limits = {
        "compile_timeout": compile_timeout,
        "run_timeout": timeout,
        "memory_limit_MB": memory_limit_mb,
    }
    return json.dumps(limits).removesuffix("}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a call beyond the program's own time."""

    margin: float = 10.0
    """Seconds that an attempt may take on top of the sandbox's time."""
    deadline: float | None = None
    """Seconds for all attempts and pauses of a call, not counting the queue.

    None: twice an attempt plus 10 s.
    """
    queue: float | None = 600.0
    """Seconds to wait in the queue for a permit; None for no limit."""
    response_bytes: int = 16 * 2**20
    """The largest answer that is read."""
    total: float | None = None
    """Seconds for a call from its beginning to its end, the queue included; None for no limit."""

    def of(self, program: Program) -> tuple[float, float]:
        """Return the seconds for one attempt and for all attempts and pauses of a call."""
        attempt = program.timeout + self.margin
        if program.language in COMPILE_TIME:
            attempt += program.compile_timeout
        whole = 2 * attempt + 10.0 if self.deadline is None else self.deadline
        if self.total is not None:
            whole = min(whole, self.total)
        return attempt, whole
