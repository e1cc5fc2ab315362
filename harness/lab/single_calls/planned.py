"""Single calls as a scenario file plans them: what each asks for, what its program does, which
faults it meets, and how it must end.

The world that plays a call and the promises that judge it read the same mapping, which the journal
keeps with the call. Texts may hold canaries: ``{word}`` (a word that occurs once in the world),
``{lines}`` (several lines of which every blank matters), ``{shared:NAME}`` (a word of the whole
scenario) and ``{long:N}`` (N characters); ``{word:NAME}`` and ``{lines:NAME}`` are other ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from sfusion_tools.errors import near
from sfusion_tools.sandbox.program import COMPILED

from ....fakes.call_mark import mark_for
from ....fakes.errors import FaultError
from ....fakes.faults.rule import read_rule
from ....fakes.fields import NotShrunk
from ..client import UNSET, TrialAsk
from ..facts.batch import LOST, LostBy, PlantedBatch
from ..facts.canary import long_text, token
from ..facts.truth import Ending, ProgramTruth

TEST = ".test-"
"""Between the id of a reward function's call and the number of its test."""
End = Literal[
    "ok", "wrong", "compiled", "ok_empty", "program_error", "timeout", "compile_error",
    "compiler_timeout", "bad_arguments", "not_run", "may_have_run", "throttled", "sandbox_failed",
    "either", "cancelled", "any",
]  # fmt: skip
TestKind = Literal["pass", "fail", "more", "exits", "stopped"]
LETTERS = {"pass": "+", "fail": "-", "more": "~", "exits": "!", "stopped": "@"}
"""A letter for what a program does at a test; + also stands where a sandbox fails."""

_CANARIES = ("word", "lines", "shared", "long")
_TEMPLATE = re.compile(r"\{(word|lines|shared|long)(?::([\w+-]+))?\}")
_BRACED = re.compile(r"\{([a-z]+)(?::[\w+-]+)?\}")
_ALL_BYTES = "{bytes}"
_KEPT = re.compile(r"\{long:(kept(?:[+-]\d+|x2)?)\}")
_LONGEST = 10_000_000
"""Characters of the longest output. Chosen: far more than a client shows, and quickly made."""
_EARLIEST_DATE = 5.0
"""Seconds that a date as Retry-After is ahead at least: the start of another process takes some.
Chosen."""


class _Part(BaseModel):
    model_config = ConfigDict(defer_build=True, extra="forbid", frozen=True, allow_inf_nan=False)


class ExecutionPart(_Part):
    """What one execution of a program does."""

    @field_validator("prints", "errors", "warnings")
    @classmethod
    def _canaries(cls, template: str) -> str:
        return _checked_template(template)

    prints: str = Field("", description="its stdout")
    errors: str = Field("", description="its stderr, or what the compiler says that refuses it")
    exit: int = Field(0, description="its exit code; negative for a signal")
    ending: Ending = Field(
        "exited", description="exited, stopped (by its time limit), not_compiled, compiler_stopped"
    )
    seconds: float = Field(0.0, ge=0, description="how long it runs if nothing stops it")
    compile_seconds: float = Field(0.0, ge=0, description="how long its compiler takes")
    warnings: str = Field("", description="what the compiler says although it succeeds")


def _checked_template(template: str) -> str:
    """Refuse canaries that are misspelt or too long; other text in braces is meant as it is."""
    for found in _BRACED.finditer(template):
        if found[1] in _CANARIES:
            continue
        hint = near(found[1], _CANARIES)
        if hint.startswith("did you mean"):
            raise ValueError(f"{found[0]} is not a canary; {hint}")
    for found in _TEMPLATE.finditer(template):
        length = found[2] or ""
        if found[1] != "long" or length.startswith("kept"):
            continue
        if not length.isdigit() or int(length) > _LONGEST:
            raise ValueError(
                f"{found[0]}: give a length from 0 to {_LONGEST:,}, or kept, kept+N, kept-N"
            )
    return template


class FaultPart(_Part):
    """A fault that strikes the requests of one call, or of one of its tests."""

    what: Annotated[Any, NotShrunk("it is the fault itself")] = Field(
        description="as in `sandbox.faults`; `retry_at` is a Retry-After as a date, in seconds"
    )
    phase: str | None = Field(None, description="as in `sandbox.faults`")
    first_attempts: int | None = Field(
        None, ge=1, description="only that many attempts; default: every one"
    )

    @model_validator(mode="after")
    def _can_strike(self) -> FaultPart:
        """Refuse what a sandbox would refuse when the call is played."""
        rule: dict[str, Any] = {"what": self._undated()}
        if self.phase is not None:
            rule["phase"] = self.phase
        try:
            read_rule(rule, where="fault")
        except FaultError as error:
            raise ValueError(str(error)) from None
        return self

    def _undated(self) -> Any:
        """Return the fault without ``retry_at``, which the world turns into a date."""
        if not isinstance(self.what, dict) or "retry_at" not in self.what:
            return self.what
        seconds = self.what["retry_at"]
        if not isinstance(seconds, int | float) or isinstance(seconds, bool):
            raise ValueError(f"retry_at takes seconds, found {seconds!r}")
        return {key: value for key, value in self.what.items() if key != "retry_at"}


class CancelledPart(_Part):
    """When a call is cancelled."""

    after: float = Field(0.0, ge=0, description="seconds after it was made")
    steps: int = Field(0, ge=0, description="iterations of the event loop later")
    steps_more: int = Field(
        0, ge=0, description="with `times`: that many iterations more for each further call"
    )


class TestPart(_Part):
    """A test of a reward function's call: what the solution does, and perhaps a fault."""

    does: TestKind = Field("pass", description="pass, fail, more, exits or stopped")
    expects: str = Field("", description="the expected output, in place of a canary")
    prints: str = Field("", description="with `expects`: what the solution prints")
    seconds: float = Field(0.0, ge=0, description="how long the solution runs")
    fault: FaultPart | None = Field(None, description="the sandbox fails at this test")

    @field_validator("expects", "prints")
    @classmethod
    def _canaries(cls, template: str) -> str:
        return _checked_template(template)

    @model_validator(mode="before")
    @classmethod
    def _word(cls, value: Any) -> Any:
        return {"does": value} if isinstance(value, str) else value


class SingleCallPart(ExecutionPart):
    """One call of `load.each`: what is asked for, what its program does, and how it must end."""

    end: End = Field(
        "ok",
        description="how the call must end by what program and fault do; of `any` only the "
        "requests are judged, of `either` the wire tells",
    )
    at: float = Field(0.0, ge=0, description="when it is made, seconds after the start")
    together: bool = Field(
        False, description="made at `at`, without waiting for the call before it to end"
    )
    times: int = Field(1, ge=1, le=1000, description="that many such calls, each with its canaries")
    every: float = Field(0.0, ge=0, description="with `times`: seconds between them")
    language: str = Field("python", description="the language of its program")
    stdin: str | None = Field(None, description="its standard input")
    files: dict[str, str] = Field({}, description="files beside it; `{bytes}` is every byte once")
    timeout: float | None = Field(None, gt=0, description="the timeout that the call states")
    arguments: Annotated[Any, Field(description="raw arguments, instead of a program")] = None
    more_code: str = Field("", description="what its code ends with")
    program_of: str | None = Field(None, description="the call whose program it sends again")
    then: ExecutionPart | None = Field(None, description="what further executions do")
    truth: str | None = Field(
        None, description="the ground truth for a reward; default: what the program prints"
    )
    tests: list[TestPart] = Field([], description="tests of a reward function")
    among: Annotated[int, NotShrunk("the others of its batch say it too")] = Field(
        1,
        ge=1,
        description="how many samples a reward function of a batch gets in one call; those of a "
        "batch are made at the same time, `at`",
    )
    groups: list[Annotated[list[float | Literal["lost"]], Field(min_length=1)]] = Field(
        [],
        description="for an advantage estimator: the rewards of each prompt's samples; `lost` "
        "stands for a sample whose call was lost",
    )
    lost_by: Annotated[LostBy | None, NotShrunk("is what the call is about")] = Field(
        None, description="how lost samples of `groups` are declared: mask, nan, none or dropped"
    )
    lost_reward: float | Literal["nan"] = Field(
        0.0, description="with `lost_by: mask`: the reward that lost samples have"
    )
    instance: str = Field("", description="the trajectory that it belongs to; default: its own")
    last: bool = Field(True, description="its trajectory is scored and released after it")
    executes: bool = Field(True, description="if not, its trajectory is only scored and released")
    cancel: CancelledPart | None = Field(None, description="it is cancelled")
    fault: list[FaultPart] = Field([], description="what goes wrong with its requests")
    needs: list[str] = Field([], description="what a client must take for it; see docs/judge.md")

    @field_validator("stdin", "truth", "more_code")
    @classmethod
    def _more_canaries(cls, template: str | None) -> str | None:
        return None if template is None else _checked_template(template)

    @field_validator("fault", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _declared(self) -> SingleCallPart:
        has_lost = any(LOST in group for group in self.groups)
        if has_lost != (self.lost_by is not None):
            raise ValueError("`lost_by` says how the lost samples of `groups` are declared")
        if "lost_reward" in self.model_fields_set and self.lost_by != "mask":
            raise ValueError("`lost_reward` is for `lost_by: mask`, which leaves the reward there")
        return self

    @model_validator(mode="after")
    def _in_a_batch(self) -> SingleCallPart:
        if self.among > 1 and not self.tests:
            raise ValueError("`among` is for samples with `tests`, which are scored in one call")
        return self

    @property
    def batch(self) -> PlantedBatch | None:
        """Return what an advantage estimator is called with."""
        if not self.groups:
            return None
        groups = tuple(
            tuple(None if reward == LOST else float(reward) for reward in group)
            for group in self.groups
        )
        return PlantedBatch(groups, self.lost_by, float(self.lost_reward))

    @property
    def written(self) -> dict[str, Any]:
        """Return the call as a file has it: what is not as by default."""
        return self.model_dump(exclude_unset=True)

    @property
    def depends(self) -> bool:
        """Is its output as long as what the client showed of an earlier one?"""
        return _KEPT.search(self.prints) is not None

    @property
    def wanted(self) -> frozenset[str]:
        """Return what a client must take for the call to be made."""
        stated = {
            "stdin": self.stdin is not None,
            "files": bool(self.files),
            "timeout": self.timeout is not None,
            "arguments": self.arguments is not None,
            "tests": bool(self.tests),
            "batch": self.among > 1,
            "groups": bool(self.groups),
            str(self.lost_by): self.lost_by is not None,
            "language": self.language != "python",
        }
        return frozenset(self.needs) | {name for name, is_stated in stated.items() if is_stated}

    def each(self) -> Iterator[SingleCallPart]:
        """Yield as many calls as it stands for."""
        if self.times == 1:
            yield self
            return
        for number in range(self.times):
            changes: dict[str, Any] = {"times": 1, "every": 0.0}
            changes["at"] = round(self.at + number * self.every, 6)
            if self.cancel is not None:
                steps = self.cancel.steps + number * self.cancel.steps_more
                changes["cancel"] = CancelledPart(after=self.cancel.after, steps=steps)
            yield self.model_copy(update=changes)

    def with_size(self, kept: int) -> SingleCallPart:
        """Return the call with the length of its output, which depends on what the client kept."""

        def size(found: re.Match[str]) -> str:
            more = found[1].removeprefix("kept")
            return f"{{long:{2 * kept if more == 'x2' else kept + int(more or 0)}}}"

        return self.model_copy(update={"prints": _KEPT.sub(size, self.prints)})

    def scaled(self, scale: float) -> SingleCallPart:
        """Return the call with all durations shortened."""
        data = self.model_dump(exclude_unset=True)
        for key in ("at", "seconds", "compile_seconds", "timeout", "every"):
            if data.get(key):
                data[key] = data[key] * scale
        if data.get("then", {}).get("seconds"):
            data["then"]["seconds"] *= scale
        if data.get("cancel", {}).get("after"):
            data["cancel"]["after"] *= scale
        for test in data.get("tests", []):
            if test.get("seconds"):
                test["seconds"] *= scale
        faults = [*data.get("fault", []), *(test.get("fault") for test in data.get("tests", []))]
        for fault in faults:
            if fault is not None:
                fault["what"] = _scaled_fault(fault["what"], scale)
        return SingleCallPart.model_validate(data)


def _scaled_fault(what: Any, scale: float) -> Any:
    if not isinstance(what, dict):
        return what
    made = dict(what)
    if "retry_after" in made:  # it has no fractions
        made["retry_after"] = float(math.ceil(made["retry_after"] * scale))
    if made.get("retry_at", 0.0) > 0:
        made["retry_at"] = max(made["retry_at"] * scale, _EARLIEST_DATE)
    if "drip" in made:
        made["drip"] = {**made["drip"], "every": made["drip"]["every"] * scale}
    return made


@dataclass(frozen=True)
class SingleCall:
    """A call that is ready to be made, with what is known about it."""

    part: SingleCallPart
    ask: TrialAsk
    programs: Mapping[str, Sequence[ProgramTruth]] = field(default_factory=dict)
    """What the programs of these calls do: on the first execution, the second, and so on."""
    faults: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.ask.call

    @property
    def end(self) -> str:
        return "tests" if self.part.tests else self.part.end

    @property
    def solution(self) -> str:
        """Return what the solution does at each test, a letter for each."""
        return "".join(LETTERS[test.does] for test in self.part.tests)


def call_id(number: int) -> str:
    """Return the id of a single call, counted from 1."""
    return f"c{number:04d}"


def mark_of_call(call: str, scenario: str) -> str:
    """Return what marks the code of a call.

    Other scenarios have calls with the same id, and a client may have kept their code.
    """
    return f"{call}.{scenario}"


def call_of_mark(mark: str, scenario: str) -> str:
    """Return the call that a mark is of; a mark of another scenario is returned as it is."""
    return mark.removesuffix(f".{scenario}")


def code_of(mark: str, language: str = "python") -> str:
    """Return a program whose every byte matters; what it does is declared by its mark."""
    comment = "//" if language in COMPILED else "#"
    return (
        f"{comment} {mark_for(mark)}\n"
        f"text = \"é e\u0301 漢字 🙂 'quoted' \\n \\\\ %s {{}}\"\t\n\n"
        f"if text:  \n    \n    print(text)\n"
        f"{comment} the end of {mark}\n"
    )


def plan_call(part: SingleCallPart, call: str, *, seed: int, scenario: str) -> SingleCall:
    """Return a call with its code, its canaries and the rules of its faults."""
    if part.groups:
        return SingleCall(part, TrialAsk(call, batch=part.batch))
    write = _Writer(seed, scenario, call)
    owner = part.program_of or call
    executions = [write.truth(part)]
    if part.then is not None:
        executions.append(write.truth(part.then))
    programs: dict[str, Sequence[ProgramTruth]] = {}
    if part.program_of is None and part.executes:
        programs[call] = tuple(executions)
    faults = [write.rule(call, number, fault) for number, fault in enumerate(part.fault)]
    tests = []
    for number, test in enumerate(part.tests):
        expected = write.text(test.expects) or f"{write.word('out', number)}\n"
        tests.append((f"{write.word('in', number)}\n", expected))
        mark = f"{call}{TEST}{number}"
        programs[mark] = (_solution(test, expected, write, number),)
        if test.fault is not None:
            faults.append(write.rule(mark, 0, test.fault))
    truth = executions[0].stdout.strip() if part.truth is None else write.text(part.truth)
    if part.arguments is not None:
        ask = TrialAsk(call, arguments=part.arguments)
    else:
        ask = TrialAsk(
            call,
            code=code_of(mark_of_call(owner, scenario), part.language) + write.text(part.more_code),
            language=part.language,
            stdin=None if part.stdin is None else write.text(part.stdin),
            files={name: _content(text) for name, text in part.files.items()},
            timeout=part.timeout,
            arguments=UNSET,
            truth=truth,
            tests=tuple(tests),
            among=part.among,
            instance=part.instance,
            last=part.last,
            executes=part.executes,
        )
    return SingleCall(part, ask, programs, tuple(faults))


def _content(text: str) -> bytes:
    return bytes(range(256)) if text == _ALL_BYTES else text.encode()


def _solution(test: TestPart, expected: str, write: _Writer, number: int) -> ProgramTruth:
    """Return what the solution of a test does."""
    wrong = f"{write.word('wrong', number)}\n"
    printed = {"fail": wrong, "more": f"{wrong}{expected}{wrong}"}.get(test.does, expected)
    if test.expects:
        printed = write.text(test.prints)
    return ProgramTruth(
        printed,
        exit=int(test.does == "exits"),
        ending="stopped" if test.does == "stopped" else "exited",
        seconds=test.seconds,
    )


class _Writer:
    """Writes the canaries of one call."""

    def __init__(self, seed: int, scenario: str, call: str) -> None:
        self._keys = seed, scenario
        self._call = call

    def word(self, *keys: object) -> str:
        return token(*self._keys, self._call, *keys)

    def truth(self, part: ExecutionPart) -> ProgramTruth:
        return ProgramTruth(
            stdout=self.text(part.prints),
            stderr=self.text(part.errors),
            exit=part.exit,
            ending=part.ending,
            seconds=part.seconds,
            compile_seconds=part.compile_seconds,
            warnings=self.text(part.warnings),
        )

    def rule(self, mark: str, number: int, fault: FaultPart) -> dict[str, Any]:
        """Return the rule of a fault, as `sandbox.faults` has them."""
        rule = {"name": f"{mark} again" if number else mark, "call": mark}
        more = {"phase": fault.phase, "first_attempts": fault.first_attempts}
        stated = {key: value for key, value in more.items() if value is not None}
        return {**rule, "what": self._filled(fault.what), **stated}

    def _filled(self, value: Any) -> Any:
        """Return a value with the canaries of its texts written out."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {key: self._filled(inner) for key, inner in value.items()}
        return value

    def text(self, template: str) -> str:
        return _TEMPLATE.sub(self._written, template)

    def _written(self, found: re.Match[str]) -> str:
        kind = found[1]
        name = found[2] or ""
        if kind == "word":
            return self.word(name)
        if kind == "shared":
            return token(*self._keys, name)
        if kind == "long":
            if name.startswith("kept"):
                return found[0]  # see ``with_size``
            return long_text(int(name), *self._keys, self._call)
        return self._lines(name)

    def _lines(self, name: str) -> str:
        """Return several lines of which every blank matters, the last without its end."""
        first, second, third = (self.word(name, part) for part in "abc")
        rule = "- · " * 16
        misleading = "[INFO] SandboxError TimeLimitExceeded C:\\new\\x41 &lt;"
        letters = "é e\u0301 漢字\u2028🙂"
        return (
            f"  {first}\n\n    {letters} {second}  \n{rule}\n{rule}\n{misleading} -17 "
            f"0.123456789 1e-9\n\tend {third}"
        )
