"""The programs of calls. The fake reads from a comment in the code what they do; a real sandbox
runs them."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from inspect import getsource
from typing import Annotated, Any

from pydantic import Field, field_validator

from sfusion_tools.output_sizes import PIPE_BYTES
from sfusion_tools.sandbox.text import plain

from ....fakes.call_mark import mark_for
from ....fakes.faults import Distribution
from ....fakes.faults.chance import drawer, uniform
from ....fakes.fields import Drawn, NotHunted
from ....fakes.sandbox.program import check_fill, fill, filled_length, filling
from ..facts.truth import ProgramTruth
from ..programs import PRINTS, REPEATED, TRACEBACK, WARNING, kept, named
from .base import Data, ScenarioPart
from .drawing import Drawing

ENDLESS = 100_000
"""Seconds of programs that never end by themselves (chosen): longer than any timeout."""
_SILENT = 1 / 8
"""The share of programs that print nothing, where a file does not say what they write. Chosen."""
_WARN = 1 / 3
"""The share of programs that warn, where a file does not say what they write. Chosen."""
_TEXTS = ("prints", "early", "errors")
_HINTS = ("exit", "raises", "memory", "sandbox_error", "compile_exit", "compile_errors")
_SLASHES = frozenset(
    [
        "cpp",
        "csharp",
        "cuda",
        "D_ut",
        "go",
        "go_test",
        "java",
        "jest",
        "js",
        "junit",
        "kotlin_script",
        "nodejs",
        "php",
        "rust",
        "scala",
        "swift",
        "ts",
        "typescript",
        "verilog",
    ]
)
"""Languages whose comments begin with two slashes."""
_NO_COMPILER = 127
"""The exit code of a shell that does not find a command."""
_MOST_PRINTED = 1_000_000_000
"""Characters that the programs of a run may print together; chosen: they fit into memory."""


class ProgramPart(ScenarioPart):
    """What a program does. The scripted sandbox does not run it: it waits `seconds` and answers
    with what it prints."""

    share: Annotated[float, Drawn(0.3, 4.0, share=0.1)] = Field(
        1.0, gt=0, description="weight among several programs; each call draws one by its id"
    )
    call: Annotated[str | None, NotHunted("any call may run any program of a case")] = Field(
        None, description="only for the call of this id, such as c0005, instead of a share"
    )
    repeated: bool = Field(
        False,
        description=(
            "the same code in all its calls, as of a model that repeats itself; "
            "{call} does not differ"
        ),
    )
    seconds: Distribution = Field(
        Distribution(numbers=(0.0,)),
        description=(
            "how long it runs: 0.2, 200ms, {uniform: [a, b]}, {lognormal: [median, sigma]}, ..."
        ),
    )
    prints: str = Field(
        PRINTS,
        description="its stdout; {call} is replaced by the call's id, {fill:N} by N "
        "characters, {canary} by lines with "
        "words that no other call prints",
    )
    early: str = Field(
        "", description="what it prints first and flushes, so that it survives a timeout"
    )
    errors: str = Field(
        "",
        description=(
            "its stderr; without `prints` and `errors` some programs warn of "
            "something, and some are silent"
        ),
    )
    whole: Annotated[bool, Drawn(True, share=0.05)] = Field(
        False,
        description="its output gets through in any size; as on the real server, a write "
        "of more than 219 kB is cut "
        "and one of twice that blocks until the timeout",
    )
    exit: int = Field(0, description="its return code; negative for a signal")
    raises: str = Field("", description="an uncaught exception, such as 'ValueError: bad'")
    memory: int = Field(
        0, ge=0, description="MB it needs; above memory_limit_mb it fails with MemoryError"
    )
    language: str | None = Field(
        None, description="its language, which the tool then offers; default: the tool's"
    )
    timeout: float | None = Field(
        None, gt=0, description="the argument `timeout` of the call, in seconds"
    )
    compile_exit: int = Field(0, description="return code of the compiler, for compiled languages")
    compile_errors: str = Field("", description="output of the compiler")
    sandbox_error: str = Field("", description="make the sandbox itself fail with this message")
    code: Annotated[str | None, NotHunted("real code has real time")] = Field(
        None, description="real code, for `executor: python`"
    )
    real: Annotated[bool, NotHunted("only for sandboxes that run code")] = Field(
        False,
        description="generate Python code that really does all this; always on with a real sandbox",
    )
    arguments: Any = Field(None, description="arguments to send as they are, instead of a program")

    _fillable = field_validator("prints", "early", "errors")(check_fill)

    @property
    def printed(self) -> int:
        """Return how many characters it prints."""
        return sum(map(filled_length, (self.prints, self.early, self.errors)))

    def prepare(self, call: str, seed: int) -> PreparedCall:
        """Return the program of one call; what is drawn depends only on seed and call."""
        name = REPEATED if self.repeated else call
        seconds = round(self.seconds.sample(drawer(seed, "program", name)), 6)
        given = self._given_texts(seed, name)
        texts = {key: named(text, name) for key, text in given.items()}
        # The sandbox writes {fill:N} out: the code itself stays short.
        raises = named(self.raises, name)
        hints = self._hints(seconds, texts, raises, named(self.compile_errors, name))
        body = self.code or ""
        if self.real and not body:
            body = self._python_source(seconds, texts, raises)
        if self.repeated:  # several repeated programs are told apart
            digest = hashlib.blake2b((hints + body).encode(), digest_size=4).hexdigest()
            name = f"{REPEATED}-{digest}"

        comment = "//" if self.language in _SLASHES else "#"
        mark = f"{comment} {mark_for(name)} {hints}".rstrip()
        return PreparedCall(
            call=call,
            mark=name if self.repeated else None,
            arguments=self._arguments(f"{mark}\n{body}"),
            seconds=seconds,
            prints=fill(texts["prints"]),
            early=fill(texts["early"]),
            errors=fill(texts["errors"]),
            part=self,
            given=given,
        )

    def _given_texts(self, seed: int, name: str) -> dict[str, str]:
        """Return what it writes as the file has it; drawn, if the file does not say."""
        texts: dict[str, str] = {key: getattr(self, key) for key in _TEXTS}
        if not self.model_fields_set & {"prints", "errors"}:
            drawn = uniform(seed, "wrote", name)
            if drawn < _SILENT:
                texts["prints"] = ""
            elif drawn < _SILENT + _WARN:
                texts["errors"] = WARNING
        return texts

    def _hints(
        self, seconds: float, texts: dict[str, str], raises: str, compile_errors: str
    ) -> str:
        """Return what the fake reads from the comment: what the program does."""
        hints: dict[str, Any] = {"seconds": seconds, **texts}
        for key in _HINTS:
            hints[key] = getattr(self, key)
        hints["raises"] = raises
        hints["compile_errors"] = compile_errors
        if self.whole:
            hints["whole"] = "yes"
        return " ".join(f"{key}={_hint(value)}" for key, value in hints.items() if value)

    def _arguments(self, code: str) -> Any:
        """Return the arguments of the call."""
        if self.arguments is not None:
            return self.arguments
        arguments: dict[str, Any] = {"code": code}
        if self.language is not None:
            arguments["language"] = self.language
        if self.timeout is not None:
            arguments["timeout"] = self.timeout
        return arguments

    def _python_source(self, seconds: float, texts: dict[str, str], raises: str) -> str:
        """Return the code: early output, memory, time, output, then how it ends."""
        prints = _expression(texts["prints"])
        early = _expression(texts["early"])
        errors = _expression(texts["errors"])
        lines = ["import builtins, os, sys, time"]
        if "filling(" in prints + early + errors:
            lines.append(getsource(filling))
        if early:
            lines += [f"sys.stdout.write({early})", "sys.stdout.flush()"]
        if self.memory:
            lines.append(f"needed = bytearray({self.memory} << 20)")
        if seconds:
            lines.append(f"time.sleep({seconds!r})")
        if errors:
            lines += [f"sys.stderr.write({errors})", "sys.stderr.flush()"]
        if prints:
            lines += [f"sys.stdout.write({prints})", "sys.stdout.flush()"]
        lines += self._source_of_end(raises)
        return "\n".join(lines) + "\n"

    def _source_of_end(self, raises: str) -> list[str]:
        """Return the lines that end the program: an exception, a signal or a return code."""
        if raises:
            name, _, words = raises.partition(": ")
            # An unknown exception is defined on the spot: what counts is the last line of the
            # traceback.
            defined = (
                f"known = getattr(builtins, {name!r}, None) or type({name!r}, (Exception,), {{}})"
            )
            return [defined, f"raise known({words!r})" if words else "raise known"]
        if self.exit < 0:
            return [f"os.kill(os.getpid(), {-self.exit})"]
        if self.exit:
            return [f"sys.exit({self.exit})"]
        return []

    def needs_fake(self, language: str) -> str | None:
        """Return why a real sandbox cannot run this, or None; ``language`` is the tool's
        default."""
        if self.arguments is not None or self.code is not None:
            return None
        if self.whole:
            return "a real server does not pass on output of any size (whole)"
        if self.sandbox_error:
            return "a program cannot make a real sandbox fail (sandbox_error)"
        if self.compile_exit or self.compile_errors:
            return "a real compiler cannot be scripted (compile_exit, compile_errors)"
        used = self.language or language
        if used != "python":
            return f"code is generated only for Python, not {used}; give `code`"
        return None


_PLAIN: Data = {"seconds": 0.5}
_TIMES = (0, 0.051, 0.503, 1.007, 2.511, {"uniform": [0.1, 1.5]})
_HUNTED: dict[str, tuple[Data, ...]] = {
    "odd_programs": (
        {"exit": 1, "prints": ""},
        {"exit": 3, "prints": "half\n", "errors": "gave up\n"},
        {"exit": -9, "prints": "so far {canary}\n"},
        {"raises": "ValueError: {call}", "prints": "before\n"},
        {"raises": "ValueError: bad", "prints": ""},
        {"prints": ""},
        {"prints": "", "errors": "only a warning\n"},
        {"memory": 4000, "prints": "never\n", "raises": "MemoryError"},
        {"sandbox_error": "no space left on device"},
        {"repeated": True, "prints": "4\n"},
        {"prints": "déjà vu 🚀 {canary}\n"},
        {
            "prints": "\x1b[31m{canary}\x1b[0m\n",
            "errors": "\x1b[0;31m\x1b[1m" * 400 + "red\x1b[0m\n",
        },
        {"prints": "[DecodeError] 'utf-8' codec can't decode byte 0xff\n"},
    ),
    "long_programs": (
        {"seconds": 3600, "early": "step 1 of {canary}\n"},
        {"seconds": 3600, "timeout": 900, "early": "begun {canary}\n"},
        {"seconds": 3600, "prints": ""},
        {"seconds": {"uniform": [1, 20]}, "prints": "{canary}\n"},
        {"seconds": 6.971, "timeout": 8, "prints": "{canary}\n"},
        {"seconds": {"choice": [4.99, 5.0, 5.01]}, "prints": "{canary}\n"},
    ),
    "loud_programs": (
        {"prints": "{canary}{fill:5000}end\n"},
        {"prints": "{fill:30000}\n"},
        {"prints": "{fill:262144}\n"},
        {"prints": "x{canary} " + "é" * 800 + "\n"},
        {"prints": "{fill:30000}\n", "errors": "Traceback {canary}\n", "exit": 1},
        {"early": "{fill:400}\n", "prints": "{canary}\n"},
    ),
    "languages": (
        {"language": "cpp", "prints": "{canary}\n"},
        {
            "language": "cpp",
            "compile_exit": 1,
            "compile_errors": "main.cpp:1:1: error: expected unqualified-id\n",
        },
        {
            "language": "go",
            "compile_exit": 127,
            "compile_errors": "/bin/bash: go: command not found\n",
        },
    ),
    "bad_arguments": (
        {"arguments": [1, 2]},
        {"arguments": {"code": 123}},
        {"arguments": {}},
        {"arguments": {"code": "print(1)", "language": "python3"}},
        {"arguments": "print(1)"},
        {"arguments": {"code": ""}},
        {"arguments": 7},
        {"arguments": {"code": "print(1)", "timeout": "abc"}},
        {"arguments": {"code": "print(1)", "timeout": -1}},
    ),
}
"""Programs that a hunt runs, by the feature of the case: what matters is how their fields go
together."""
PROGRAM_FEATURES = tuple(_HUNTED)


def draw_programs(drawing: Drawing, _: Data) -> Data | list[Data]:
    """Return the programs of a load; a field that is declared as drawn is added to any of them."""
    programs: list[Data] = []
    for feature, hunted in _HUNTED.items():
        if drawing.has(feature):
            count = drawing.random.randint(1, 2)
            programs += map(dict, drawing.random.sample(hunted, count))
    if not programs or drawing.happens(0.8):
        programs.insert(0, {**_PLAIN, "seconds": drawing.one(*_TIMES)})
    programs = [{**program, **drawing.part(ProgramPart)} for program in programs]
    return programs[0] if len(programs) == 1 else programs


def check_printed(characters: int) -> None:
    """Raise ValueError if the programs of a run print too much together."""
    if characters > _MOST_PRINTED:
        raise ValueError(
            f"the programs of all calls may print {characters:,} characters; "
            f"at most {_MOST_PRINTED:,} are possible"
        )


@dataclass(slots=True)
class PreparedCall:
    """The program of one call, ready to send."""

    call: str
    mark: str | None
    """What the sandbox calls it, where that is not its id."""
    arguments: Any
    seconds: float
    prints: str
    early: str
    errors: str
    part: ProgramPart
    given: dict[str, str]
    """The texts as the file has them."""

    @property
    def truth(self) -> ProgramTruth:
        """Return what the program prints when nothing stops it, without the escape codes that a
        tool may remove."""
        return ProgramTruth(plain(self.early + self.prints), plain(self.errors))

    def intent(self, default_timeout: float) -> dict[str, Any]:
        """Return what the program does when nothing goes wrong, for the journal."""
        intent = self._intent_before_running() or self._intent_when_run(default_timeout)
        if self.mark is not None:
            intent["mark"] = self.mark
        return intent

    def _intent_before_running(self) -> dict[str, Any] | None:
        """Return the intent of a program that is not run, or of which nothing is known."""
        part = self.part
        if part.arguments is not None:
            return {"kind": "bad_arguments"}
        if part.code is not None:
            return {"kind": "real"}
        # A missing compiler is not the program's fault.
        if part.sandbox_error or part.compile_exit == _NO_COMPILER:
            return {"kind": "sandbox_error"}
        if part.compile_exit:
            errors = kept({"errors": part.compile_errors})
            return {"kind": "compile_error", "exit": part.compile_exit, **errors}
        return None

    def _intent_when_run(self, default_timeout: float) -> dict[str, Any]:
        part = self.part
        given = self.given
        if self.seconds > (part.timeout or default_timeout):
            return {"kind": "program_timeout", **kept({"early": given["early"]})}
        if not part.whole and len(self.early) + len(self.prints) > 2 * PIPE_BYTES:
            return {"kind": "program_timeout", **kept({"early": given["early"] + given["prints"]})}
        errors = given["errors"]
        code = part.exit
        if part.raises:
            errors += f"{TRACEBACK}{part.raises}\n"
            code = 1
        intent: dict[str, Any] = {"kind": "program_error" if code else "ok"}
        intent |= kept({"early": given["early"], "errors": errors})
        if given["prints"] != PRINTS:
            intent |= {"prints": "", **kept({"prints": given["prints"]})}
        if code:
            intent["exit"] = code
        if part.whole:
            intent["whole"] = True
        return intent


def _hint(value: Any) -> str:
    return json.dumps(value) if isinstance(value, str) else str(value)


def _expression(text: str) -> str:
    """Return a Python expression for a text, with ``{fill:N}`` kept short; empty for an empty
    one."""
    terms: list[str] = []
    for place, piece in enumerate(re.split(r"\{fill:([0-9]+)\}", text)):
        if place % 2:  # every second piece is a number
            terms.append(f"filling({piece})")
        elif piece:
            terms.append(repr(piece))
    return " + ".join(terms)
