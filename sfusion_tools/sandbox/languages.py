"""The languages of Sandbox Fusion."""

from __future__ import annotations

from typing import Literal, get_args

Compiled = Literal[
    "cpp", "go", "go_test", "java", "csharp", "rust", "cuda", "D_ut", "scala", "kotlin_script", "verilog",
    "typescript", "swift", "junit",
]  # fmt: skip
Interpreted = Literal[
    "python", "nodejs", "php", "bash", "sql", "lua", "R", "perl", "ruby", "julia", "pytest", "jest", "python_gpu",
    "lean", "racket",
]  # fmt: skip

COMPILED: frozenset[str] = frozenset(get_args(Compiled))
"""Languages with a compile step, which gets its own time on top of the program's."""
LANGUAGES: frozenset[str] = COMPILED | frozenset(get_args(Interpreted))
RUNNABLE = LANGUAGES - {"sql"}
"""What a model may choose. Servers accept `sql` but have no runner for it: the SandboxError would hide a failure."""
