"""Scores a generation on input/output cases, run in the sandbox.

The result of a case is True, False, or a number that says why it did not pass. An infrastructure
failure is never a wrong answer: its case is lost, and the score has bounds. A program that raises
never passes, and no case affects the result of another.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from importlib import import_module
from typing import Any, Protocol, TypeGuard

from sfusion_tools._loops import in_own_loop
from sfusion_tools.code_blocks import extract_code
from sfusion_tools.errors import GuardTripped, ScoringError, near
from sfusion_tools.outcome import Outcome
from sfusion_tools.output_sizes import FULL_PIPE_BYTES
from sfusion_tools.runner import CodeRunner
from sfusion_tools.sandbox import LANGUAGES, CallResult, Program
from sfusion_tools.wording import counted

# Why a case did not pass: the numbers of verl's sandbox_fusion reward.
INFRASTRUCTURE = -1
RUNTIME_ERROR = -2
TIMEOUT = -3
COMPILE_ERROR = -4

CaseResult = bool | int

_PROGRAM = """\
import json, linecache, os, sys, traceback, types

source = {source!a}
# The solution may close or replace stdout, patch modules, and leave tracebacks, which quote it.
out = os.fdopen(os.dup(1), "w", encoding="ascii")
encode = json.JSONEncoder().encode
arguments = json.loads(sys.stdin.read())
sys.excepthook = traceback.print_exception
linecache.cache["solution.py"] = len(source), None, source.splitlines(True), "solution.py"
# It is imported, not run: `__name__` is not "__main__".
solution = sys.modules["solution"] = types.ModuleType("solution")
solution.__file__ = "solution.py"
for word, home in {names!r}.items():
    try:
        module = __import__(home)
        setattr(solution, word, module if word == home else getattr(module, word))
    except (ImportError, AttributeError):
        pass
try:
    exec(compile(source, "solution.py", "exec", dont_inherit=True), solution.__dict__)
except SystemExit as stop:
    if stop.code:
        raise
owner = getattr(solution, "Solution", None)
function = getattr(owner() if hasattr(owner, {name!r}) else solution, {name!r})
# Called from here, so that no frame of ours takes away from the depth of recursion.
result = encode(function(*arguments))
try:
    sys.stdout.flush()
except Exception:
    pass
out.write({mark!a} + result + "\\n")
out.close()
"""

_GIVEN = (
    "typing",
    "string",
    "re",
    "datetime",
    "operator",
    "statistics",
    "random",
    "copy",
    "math",
    "functools",
    "itertools",
    "bisect",
    "heapq",
    "collections",
    "io",
    "json",
    "sys",
)
"""The modules whose names solutions get; of equal names, that of the later one."""
_UNLIMITED = {"enable_global_rate_limit": False}
_WORD = re.compile(r"[A-Za-z_]\w*")
NO_RESULT = object()
"""Equals nothing that a function can return."""


@dataclass(frozen=True, slots=True)
class Case:
    """One input and the expected output."""

    stdin: str
    expected: Any
    texts: tuple[str, ...]
    """How a right program prints or encodes its answer."""


class RunsPrograms(Protocol):
    """A CodeRunner, or the SandboxClient beneath it."""

    async def run(self, program: Program, /) -> CallResult: ...


@dataclass(slots=True)
class Scoring:
    """The results of all cases, in their order."""

    results: list[CaseResult]
    calls: list[CallResult | None] = field(default_factory=list)
    """The call of each case, with its attempts; None if the deadline passed first."""

    @property
    def lost(self) -> int:
        """The number of cases that infrastructure kept from being scored."""
        return sum(result is not True and result == INFRASTRUCTURE for result in self.results)

    @property
    def bounds(self) -> tuple[float, float]:
        """The scores if all lost cases had failed, and if all had passed."""
        passed = sum(result is True for result in self.results)
        return passed / len(self.results), (passed + self.lost) / len(self.results)

    @property
    def score(self) -> float | None:
        """The fraction of cases passed; None if a case is lost.

        Then leave the sample out of loss and baseline, or use the bounds.
        """
        return None if self.lost else self.bounds[0]

    @property
    def passed(self) -> bool | None:
        """True if every case passed, False if one did not; None if lost cases decide."""
        lowest, highest = self.bounds
        if lowest < 1.0 and highest == 1.0:
            return None
        return lowest == 1.0


async def score(
    generation: str,
    in_outs: Mapping[str, Any],
    runner: RunsPrograms,
    *,
    language: str = "python",
    timeout: float = 10.0,
    memory_limit_mb: int = 1024,
    concurrency: int = 8,
    deadline: float = 120.0,
    tolerance: float = 0.0,
) -> Scoring:
    """Run a generation on every case of ``{"inputs": […], "outputs": […]}``.

    With ``fn_name``, cases call a function. At most ``concurrency`` cases run at once; after
    ``deadline`` seconds the rest are not scored. Numbers may differ from the expected ones by
    ``tolerance``, absolute or relative.
    """
    _check_numbers(
        timeout=timeout,
        memory_limit_mb=memory_limit_mb,
        concurrency=concurrency,
        deadline=deadline,
        tolerance=tolerance,
    )
    if language not in LANGUAGES:
        raise ScoringError(
            f"{language!r} is not a language of Sandbox Fusion; {near(str(language), LANGUAGES)}"
        )
    if not isinstance(in_outs, Mapping):
        raise ScoringError(f"cases must be a mapping, found {in_outs!r:.100}")
    fn_name = in_outs.get("fn_name")
    if fn_name is not None and language != "python":
        raise ScoringError(f"fn_name works for python only, the language is {language!r}")
    cases = _cases(in_outs, fn_name)
    # A lone surrogate would make the server fail, so that the model's mistake would look like the
    # sandbox's.
    source = extract_code(generation, language).encode("utf-8", "replace").decode()
    code = source if fn_name is None else calling_program(source, str(fn_name))
    mark = None if fn_name is None else mark_of(source)
    places = asyncio.Semaphore(concurrency)
    scoring = Scoring([INFRASTRUCTURE] * len(cases), [None] * len(cases))

    async def run(number: int, case: Case) -> None:
        program = Program(
            code, language, timeout, memory_limit_mb=memory_limit_mb, stdin=case.stdin
        )
        async with places:
            call = await runner.run(program)
        scoring.calls[number] = call
        scoring.results[number] = _verdict(call, case, mark, tolerance)

    # Cases that are not reached in time keep the result INFRASTRUCTURE.
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(deadline), asyncio.TaskGroup() as group:
                for number, case in enumerate(cases):
                    group.create_task(run(number, case))
    except BaseExceptionGroup as several:
        trips = [error for error in several.exceptions if isinstance(error, GuardTripped)]
        raise (trips[0] if trips else several) from None
    return scoring


def _check_numbers(
    *,
    timeout: object,
    memory_limit_mb: object,
    concurrency: object,
    deadline: object,
    tolerance: object,
) -> None:
    """Raise ScoringError for the first number that makes no sense."""
    if not _is_whole(concurrency) or concurrency < 1:
        raise ScoringError(
            f"concurrency must be a whole number of at least 1, found {concurrency!r}"
        )
    if not _is_whole(memory_limit_mb):
        raise ScoringError(f"memory_limit_mb must be a whole number, found {memory_limit_mb!r}")
    if not isinstance(timeout, int | float) or not 0 < timeout < math.inf:
        raise ScoringError(f"timeout must be a number of seconds above 0, found {timeout!r}")
    if not isinstance(deadline, int | float) or math.isnan(deadline):
        raise ScoringError(f"deadline must be a number of seconds, found {deadline!r}")
    if not isinstance(tolerance, int | float) or not 0 <= tolerance < 1:
        raise ScoringError(f"tolerance must be a number from 0 to below 1, found {tolerance!r}")


def score_sync(
    generation: str,
    in_outs: Mapping[str, Any],
    sandbox: str | Sequence[str] | Mapping[str, Any],
    **settings: Any,
) -> Scoring:
    """Do what ``score`` does, and block until it is done: for reward functions, from any thread.

    ``sandbox`` is a URL, several of them, or the config of a SandboxFusionTool, which adds its
    limiter, headers, retries and guard. Everything opened for this is closed again.
    """
    # Read here, so that a mistake in it is raised before a thread is started.
    config = sandbox
    if not isinstance(config, Mapping):
        config = {"sandbox_fusion_url": sandbox, **_UNLIMITED}
    runner = CodeRunner(config)
    return in_own_loop(score(generation, in_outs, runner, **settings))


def _cases(in_outs: Mapping[str, Any], fn_name: object) -> list[Case]:
    inputs = _sequence(in_outs, "inputs")
    outputs = _sequence(in_outs, "outputs")
    if len(inputs) != len(outputs) or not inputs:
        found = f"{counted(len(inputs), 'input')} and {counted(len(outputs), 'output')}"
        raise ScoringError(f"{found}; give the same number of both, at least one")
    for number, expected in enumerate(outputs):
        if expected is None:
            raise ScoringError(
                f"outputs[{number}] is null: a case without an expected output would pass or fail "
                "by luck"
            )
    make = _function_case if fn_name is not None else _stdin_case
    return [make(number, *case) for number, case in enumerate(zip(inputs, outputs, strict=True))]


def _is_whole(number: object) -> TypeGuard[int]:
    return isinstance(number, int) and not isinstance(number, bool)


def _sequence(in_outs: Mapping[str, Any], name: str) -> Sequence[Any]:
    given = in_outs.get(name)
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        found = f"{name} is a {type(given).__name__}" if name in in_outs else f"{name} is missing"
        raise ScoringError(f"cases need the lists `inputs` and `outputs`, but {found}")
    return given


def _stdin_case(number: int, given: Any, expected: Any) -> Case:
    answer = _whole(expected, f"outputs[{number}]")
    stdin = "" if given is None else _whole(given, f"inputs[{number}]")
    return Case(stdin, expected=_lines(answer), texts=(answer,))


def _whole(text: Any, where: str) -> str:
    """Accept text, or a list of lines."""
    lines = text if isinstance(text, list) else [text]
    for line in lines:
        if isinstance(line, bytes | bytearray | set | frozenset):
            raise ScoringError(f"{where} is not text but {type(line).__name__}")
    try:
        return "\n".join(map(str, lines))
    except ValueError as error:
        raise ScoringError(f"{where} is not text: {error}") from None


def _function_case(number: int, given: Any, expected: Any) -> Case:
    """Accept arguments as a list or as text with one JSON value per line.

    The expected value may be JSON text too.
    """
    arguments = given
    if isinstance(given, str):
        try:
            arguments = [json.loads(line) for line in given.splitlines() if line.strip()]
        except (ValueError, RecursionError) as error:
            raise ScoringError(
                f"the input of a function case is not one JSON value per line: {error}"
            ) from None
    if not isinstance(arguments, list | tuple):
        raise ScoringError(
            f"the input of a function case must be a list of arguments, found {given!r}"
        )
    # Text may be the value itself or its JSON; a function may return either.
    texts = [_json(expected, f"outputs[{number}]")]
    if isinstance(expected, str):
        with suppress(ValueError, RecursionError):
            texts.append(json.dumps(json.loads(expected)))
    return Case(
        stdin=_json(arguments, f"inputs[{number}]"),
        expected=[comparable(text) for text in texts],
        texts=tuple(texts),
    )


def _json(value: Any, where: str) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ScoringError(f"{where} is not JSON: {error}") from None


def _verdict(call: CallResult, case: Case, mark: str | None, tolerance: float) -> CaseResult:
    """Score a call; its result follows the mark in a function case."""
    if call.scored:
        return RUNTIME_ERROR
    match call.outcome:
        case Outcome.OK:
            if mark is None:
                right = is_close(_lines(call.stdout), case.expected, tolerance)
            else:
                result = read_result(call.stdout, mark)
                right = any(is_close(result, expected, tolerance) for expected in case.expected)
            if not right and _is_too_long(call, case, mark):
                return INFRASTRUCTURE
            return right
        case Outcome.PROGRAM_ERROR:
            return RUNTIME_ERROR
        case Outcome.PROGRAM_TIMEOUT:
            return INFRASTRUCTURE if _is_too_long(call, case, mark) else TIMEOUT
        case Outcome.COMPILE_ERROR:
            return COMPILE_ERROR
        case _:
            return INFRASTRUCTURE


def _is_too_long(call: CallResult, case: Case, mark: str | None) -> bool:
    """True if the right answer is larger than the sandbox can return.

    Such output is cut, or blocks the program. What did arrive must be the beginning of the right
    answer, and not mostly something else: a wrong one is not excused for its length.
    """
    arrived = _size(call.stdout)
    if max(map(_size, case.texts)) < FULL_PIPE_BYTES or arrived < FULL_PIPE_BYTES:
        return False
    if mark is not None:
        shown = call.stdout.partition(mark)[2]
        begins = any(text.startswith(shown) for text in case.texts)
    else:
        *whole, last = f"{call.stdout}.".splitlines()  # the dot keeps an empty last line
        cut = last[:-1]
        lines = [line.rstrip() for line in whole]
        wanted = "".join(case.expected[len(lines) :][:1])
        last_begins = wanted.startswith(cut) or wanted == cut.rstrip()
        begins = lines == case.expected[: len(lines)] and last_begins
        shown = "\n".join([*lines, cut.rstrip()])
    return begins and 2 * _size(shown) >= arrived


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _lines(text: str) -> list[str]:
    """Split into lines, ignoring trailing blanks of lines and of the text."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def calling_program(source: str, name: str) -> str:
    """Return the program that calls the function; an exception ends it with an error.

    The solution finds the names of the standard library that LeetCode's solutions use without
    importing them. The function itself is never one of them.
    """
    if not name.isidentifier():
        raise ScoringError(f"fn_name must be the name of a function, found {name!r}")
    words = set(_WORD.findall(source)) - {name, "Solution"}
    names = {word: home for word, home in _given_names().items() if word in words}
    return _PROGRAM.format(source=source, name=name, mark=mark_of(source), names=names)


@cache
def _given_names() -> dict[str, str]:
    """The modules that a solution gets, and their names, with the module that each comes from."""
    found: dict[str, str] = {}
    for home in _GIVEN:
        module = import_module(home)
        public = getattr(module, "__all__", None)
        if not public:
            public = [name for name in vars(module) if not name.startswith("_")]
        for name in public:
            if not hasattr(builtins, name):
                found[name] = home
    return found | {home: home for home in _GIVEN}


def mark_of(source: str) -> str:
    """Return what precedes the result in stdout.

    No text contains its own hash, so no solution can spell it out.
    """
    return f"\x1fsfusion {sha256(source.encode()).hexdigest()[:16]}\x1f"


def is_close(found: Any, expected: Any, tolerance: float) -> bool:
    """Compare what ``comparable`` returns, or lines of words.

    Numbers, and words that are numbers, may differ by the tolerance.
    """
    if found == expected or not tolerance:
        return bool(found == expected)
    match found, expected:
        case (list(), list()) if len(found) == len(expected):
            return all(is_close(*pair, tolerance) for pair in zip(found, expected, strict=True))
        case (dict(), dict()) if found.keys() == expected.keys():
            return all(is_close(found[key], expected[key], tolerance) for key in found)
        case (tuple(), tuple()):
            with suppress(OverflowError):  # integers that no float can hold
                return math.isclose(found[0], expected[0], rel_tol=tolerance, abs_tol=tolerance)
        case (str(), str()):
            words = found.split()
            expected_words = expected.split()
            if len(words) == len(expected_words) != 1:
                return is_close(words, expected_words, tolerance)
            with suppress(ValueError):
                return math.isclose(
                    float(found), float(expected), rel_tol=tolerance, abs_tol=tolerance
                )
    return False


def comparable(text: str) -> Any:
    """Parse JSON so that equal values, and no others, are ``==``.

    NaN equals itself, and 1 is 1.0 but not true.
    """
    return json.loads(
        text,
        parse_int=lambda digits: (int(digits),),
        parse_float=_float,
        parse_constant=_CONSTANTS.__getitem__,
    )


def _float(digits: str) -> tuple[float]:
    return (float(digits),)


_CONSTANTS = {name: _float(name) for name in ("NaN", "Infinity", "-Infinity")}
"""One object for every NaN: containers compare by identity first."""


def read_result(stdout: str, mark: str) -> Any:
    """Return what the function returned.

    NO_RESULT if it returned nothing, or if the mark is there twice.
    """
    parts = stdout.split(mark)
    if len(parts) != 2:
        return NO_RESULT
    try:
        return comparable(parts[1].partition("\n")[0])
    except (ValueError, RecursionError):
        return NO_RESULT
