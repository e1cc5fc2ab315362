"""What the calls of a scenario run: programs, told to the fake by hints beside the mark, or really run."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from sfusion.fakes.faults import Distribution
from sfusion.fakes.faults.chance import drawer
from sfusion.harness.scenarios.base import ScenarioPart
from sfusion.harness.scenarios.enacting import python_source


class ProgramPart(ScenarioPart):
    """What a program does. The scripted sandbox runs nothing: it lets the seconds pass and says what was printed."""

    share: float = Field(1.0, gt=0, description="weight among several programs; each call draws its own by its id")
    seconds: Distribution = Field(
        Distribution(numbers=(0.0,)),
        description="how long it runs: 0.2, 200ms, {uniform: [a, b]}, {lognormal: [median, sigma]}, ...",
    )
    prints: str = Field("ok\n", description="what it prints; {call} becomes the id of the call, {fill:N} N characters")
    early: str = Field("", description="what it prints and flushes first, kept when it is stopped for time")
    errors: str = Field("", description="what it writes to stderr")
    exit: int = Field(0, description="its return code; negative for the signal that killed it")
    raises: str = Field("", description="an uncaught exception, such as 'ValueError: bad'")
    memory: int = Field(0, ge=0, description="MB it needs; above memory_limit_mb it dies of MemoryError")
    language: str | None = Field(None, description="its language; the tool's default when not given")
    timeout: float | None = Field(None, gt=0, description="the seconds the model asks for, as its argument `timeout`")
    compile_exit: int = Field(0, description="return code of the compiler, for compiled languages")
    compile_errors: str = Field("", description="what the compiler writes")
    sandbox_error: str = Field("", description="the sandbox itself fails with this message")
    code: str | None = Field(None, description="real code below the mark, for `executor: python`")
    real: bool = Field(
        False, description="write code that really does all this (Python only); always so against a real sandbox"
    )
    arguments: Any = Field(None, description="send these arguments of the model as they are, instead of a program")

    def prepare(self, call: str, seed: int) -> PreparedCall:
        """The program of one call; its draws depend on seed and call only."""
        seconds = round(self.seconds.sample(drawer(seed, "program", call)), 6)
        prints, early, errors = (fill(text, call) for text in (self.prints, self.early, self.errors))
        hints: dict[str, Any] = {}
        given = {"seconds": seconds, "prints": prints, "early": early, "errors": errors, "exit": self.exit}
        given |= {"raises": self.raises, "memory": self.memory, "sandbox_error": self.sandbox_error}
        given |= {"compile_exit": self.compile_exit, "compile_errors": self.compile_errors}
        for key, value in given.items():
            if value:
                hints[key] = value
        text = " ".join(f"{key}={_hint(value)}" for key, value in hints.items())
        comment = "//" if self.language in _SLASHES else "#"
        body = self.code or ""
        if self.real and not body:
            body = python_source(
                seconds=seconds,
                early=early,
                prints=prints,
                errors=errors,
                exit=self.exit,
                raises=self.raises,
                memory=self.memory,
            )
        code = f"{comment} sfusion:call={call} {text}".rstrip() + "\n" + body
        arguments: Any = {"code": code}
        if self.language is not None:
            arguments["language"] = self.language
        if self.timeout is not None:
            arguments["timeout"] = self.timeout
        if self.arguments is not None:
            arguments = self.arguments
        return PreparedCall(call, arguments, seconds, prints, early, self)

    def only_faked(self, language: str) -> str | None:
        """Why a real sandbox cannot run this, None when it can; ``language`` is the tool's default."""
        if self.arguments is not None or self.code is not None:
            return None
        if self.sandbox_error:
            return "a program cannot make a real sandbox fail (sandbox_error)"
        if self.compile_exit or self.compile_errors:
            return "no compiler is told what to say (compile_exit, compile_errors)"
        if (self.language or language) != "python":
            return f"no {self.language or language} is written for it: give `code`"
        return None


class PreparedCall:
    """One call's program, ready to send."""

    __slots__ = ("arguments", "call", "early", "part", "prints", "seconds")

    def __init__(self, call: str, arguments: Any, seconds: float, prints: str, early: str, part: ProgramPart) -> None:
        self.call = call
        self.arguments = arguments
        self.seconds = seconds
        self.prints = prints
        self.early = early
        self.part = part

    def intent(self, default_timeout: float) -> dict[str, Any]:
        """What the program does when it is really run to its end, for the journal."""
        part = self.part
        if part.arguments is not None:
            return {"kind": "bad_arguments"}
        if part.code is not None:
            return {"kind": "real"}
        if part.sandbox_error:
            return {"kind": "sandbox_error"}
        if part.compile_exit:
            return {"kind": "compile_error"}
        shown: dict[str, Any] = {}
        if self.early:
            shown["early"] = self.early[:SHOWN]
        if self.seconds > (part.timeout or default_timeout):
            return {"kind": "program_timeout", **shown}
        kind = "program_error" if part.exit or part.raises else "ok"
        return {"kind": kind, "prints": self.prints[:SHOWN], **shown}


SHOWN = 400
"""Characters of a text that the journal keeps."""
_SLASHES = frozenset(["cpp", "go", "go_test", "java", "rust", "nodejs", "js", "ts", "typescript", "csharp", "scala",
                      "swift", "kotlin_script", "jest", "junit", "php", "cuda", "verilog", "D_ut"])  # fmt: skip


def fill(text: str, call: str) -> str:
    """Put the call's id and filling into a text."""
    text = text.replace("{call}", call)
    while "{fill:" in text:
        before, _, rest = text.partition("{fill:")
        size, _, after = rest.partition("}")
        text = before + "x" * int(size) + after
    return text


def _hint(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)
