"""Multi-turn rollouts as the load of a scenario: the fake engine generates, the tool answers."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sfusion_tools.errors import UnknownFormatError, near

from ....fakes.errors import FaultError
from ....fakes.faults import KINDS, Rule, Seconds
from ....fakes.faults.pattern import Pattern
from ....fakes.fields import Drawn, NotHunted, NotShrunk
from .base import Data, ScenarioPart
from .drawing import Drawing
from .program import ProgramPart, check_printed, draw_programs

_CODE = re.compile(r"\{code:([0-9]+)\}")
_MOST_TURNS = 200_000
"""Turns and calls of all trajectories; chosen: their journal still fits into memory."""
_FORMAT = "hermes"
_FITS = ("fits-1", "fits", "fits+1")


def _bound(value: Any) -> Any:
    if isinstance(value, str) and value.replace(" ", "") in _FITS:
        return value.replace(" ", "")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        words = ", ".join(_FITS)
        raise ValueError(
            f"{value!r} is not a limit: use a whole number of at least 1, or one of {words}"
        )
    return value


Bound = Annotated[int | str, BeforeValidator(_bound)]
"""A number, or `fits-1`, `fits`, `fits+1`: relative to what the same rollout needs without a
limit."""
_Room = Annotated[
    Bound | None, Drawn(5, 60, 300, 2000, *_FITS, share=0.3), NotShrunk("less room is not simpler")
]


class LimitsPart(ScenarioPart):
    """The limits of a trajectory; `fits` is what it needs without a limit, `fits-1` one less."""

    max_prompt_len: _Room = Field(None, description="maximum tokens of the prompt")
    max_response_len: _Room = Field(None, description="maximum tokens after the prompt")
    max_model_len: _Room = Field(None, description="maximum tokens of prompt and response together")
    max_tool_response_length: _Room = Field(
        None, description="maximum characters of a tool message"
    )
    tool_response_truncate_side: Annotated[Literal["left", "right", "middle"], Drawn(share=0.4)] = (
        Field("middle", description="which part of a long tool message is cut")
    )
    max_assistant_turns: Annotated[int | None, Drawn(2, 3, 4, share=0.1)] = Field(
        None, ge=1, description="maximum replies of the model"
    )
    max_parallel_calls: Annotated[int | None, Drawn(1, share=0.2)] = Field(
        None, ge=1, description="maximum calls executed per turn"
    )
    max_consecutive_invalid_calls: Annotated[int | None, Drawn(1, 2, share=0.2)] = Field(
        None, ge=1, description="unusable calls in a row that end the trajectory"
    )


def _draw_calls(drawing: Drawing, _: Data) -> list[Data]:
    given = draw_programs(drawing, {})
    programs: list[Data] = []
    for program in given if isinstance(given, list) else [given]:
        if {"repeated", "arguments"} & program.keys():
            continue  # these are for the programs of a load
        if "prints" in program:
            program["prints"] = str(program["prints"]).replace("{call}", "4")
        programs.append(program)
    if not programs:
        return []
    return drawing.random.sample(programs, 1 if drawing.happens(0.6) else len(programs))


def _kinds() -> tuple[str, ...]:
    """Return the ways to write a call wrongly."""
    # Here, as the formats below: a scenario without rollouts starts sooner without them.
    from ....fakes.sglang.malformed import kinds

    return kinds()


def _can_be_wrong(kind: str, format: str) -> bool:
    """Return whether a call in this format can be wrong in this way."""
    from ....fakes.sglang.malformed import malformed

    return malformed(kind, format, 0) is not None


def _draw_malformed(drawing: Drawing, turn: Data) -> str | None:
    return drawing.one(*_kinds()) if turn.get("programs") else None


class RolloutTurn(ScenarioPart):
    """What the model writes in one turn: text, tool calls, or raw output."""

    say: Annotated[str, Drawn("Compute.", "naïve 🚀", "")] = Field(
        "", description="its text; {id} is replaced by the trajectory's id"
    )
    programs: Annotated[list[ProgramPart], Drawn(how=_draw_calls)] = Field(
        [], description="programs for which it calls the tool"
    )
    sees: Annotated[Pattern | None, NotHunted("ends well only if a fault spoils nothing")] = Field(
        None,
        description=(
            "a regular expression that the last tool messages must match; if not, "
            "the model gives up"
        ),
    )
    malformed: Annotated[
        str | None, Drawn(how=_draw_malformed, when="bad_arguments", share=0.5)
    ] = Field(
        None,
        description=(
            "write the call of the first program wrongly: bad_escape, unbalanced, unknown_tool, ..."
        ),
    )
    raw: Annotated[str | None, NotHunted("`malformed` writes calls wrongly in every known way")] = (
        Field(
            None,
            description="the whole output as it is, instead of text and calls; {code:1} is "
            "replaced by the code of the "
            "first program, escaped for JSON",
        )
    )

    @model_validator(mode="after")
    def _one_way(self) -> RolloutTurn:
        for key in ("call", "repeated"):
            if any(getattr(program, key) for program in self.programs):
                raise ValueError(f"programs: `{key}` is only for the programs of a load")
        if self.malformed is None:
            self._check_codes()
        else:
            self._check_malformed(self.malformed)
        return self

    def _check_codes(self) -> None:
        """Raise ValueError if ``raw`` names a program that the turn does not have."""
        for number in _CODE.findall(self.raw or ""):
            if not 1 <= int(number) <= len(self.programs):
                raise ValueError(
                    f"raw: {{code:{number}}} needs a program number {number} in `programs`"
                )

    def _check_malformed(self, kind: str) -> None:
        if self.raw is not None:
            raise ValueError("malformed and raw are two ways to write a turn; give one of them")
        if kind not in _kinds():
            raise ValueError(f"malformed: {kind!r} is not a kind; {near(kind, _kinds())}")
        if not self.programs:
            raise ValueError("malformed spoils the call of the first program; give `programs`")

    def raw_text(self, codes: list[str]) -> str:
        """Return ``raw`` with the code of its programs."""

        def escaped_code(found: re.Match[str]) -> str:
            code = codes[int(found[1]) - 1]
            return json.dumps(code)[1:-1]

        return _CODE.sub(escaped_code, self.raw or "")


def _draw_turns(drawing: Drawing, part: Data) -> list[Data]:
    turns = [drawing.part(RolloutTurn) for _ in range(drawing.random.randint(1, 3))]
    format = part.get("format", _FORMAT)
    for turn in turns:
        if "malformed" in turn and not _can_be_wrong(turn["malformed"], format):
            del turn["malformed"]
    return [*turns, {"say": "It is 4."}]


def _draw_limits(drawing: Drawing, part: Data) -> Data | None:
    if part.get("repeat"):  # nothing else ends it
        return {"max_assistant_turns": drawing.random.randint(2, 4)}
    if not drawing.happens(0.5):
        return None
    limits = drawing.part(LimitsPart)
    if "max_model_len" in limits:
        limits.pop("max_prompt_len", None)
    return limits


_OF_REQUESTS = ("path", "method", "language", "code", "call", "above_in_flight", "phase")
"""Conditions of a rule that no question to an engine meets."""


def _draw_engine_faults(drawing: Drawing, _: Data) -> list[Data]:
    able = {name: kind for name, kind in KINDS.items() if not kind.sandbox_only}
    rule = drawing.rule("engine", kinds=able)
    what = rule["what"][0] if isinstance(rule["what"], list) else rule["what"]
    for kind in {"hang", "wedge"} & what.keys():  # nothing bounds how long an engine may take
        what = {kind: drawing.one(2, 20)}
    able_conditions = {key: value for key, value in rule.items() if key not in _OF_REQUESTS}
    return [{**able_conditions, "what": what}]


def _draw_format(drawing: Drawing, _: Data) -> str:
    """Return one of the first formats, so that seeds of earlier hunts draw the same cases."""
    from sfusion_tools.formats import format_names

    drawn: str = drawing.one(*format_names()[:11])
    return drawn


class RolloutPart(ScenarioPart):
    """Trajectories r001, r002, ...; their calls are called r001.t1.1 and so on."""

    count: Annotated[int, Drawn(range(1, 7))] = Field(
        8, ge=1, le=100_000, description="number of trajectories"
    )
    at_once: Annotated[int | None, Drawn(1, 2, 3, share=0.2)] = Field(
        None, ge=1, description="how many run at a time; default: all"
    )
    enough: Annotated[
        int | None,
        Drawn(how=lambda drawing, part: drawing.random.randint(1, part["count"]), share=0.15),
    ] = Field(
        None, ge=1, description="cancel the rest when this many are completed (over-sampling)"
    )
    format: Annotated[str, Drawn(how=_draw_format)] = Field(
        _FORMAT, description="tool-call format; see `sfusion parse --help`"
    )
    turns: Annotated[list[RolloutTurn], Drawn(how=_draw_turns)] = Field(
        min_length=1,
        max_length=1000,
        description=(
            "what the model does, turn by turn; after the last turn it gives a final answer"
        ),
    )
    repeat: Annotated[bool, Drawn(True, share=0.1)] = Field(
        False, description="repeat the last turn for ever, like a model in a loop"
    )
    prompt: Annotated[str, Drawn("Compute 2 + 2, naïvely 🚀.", share=0.1)] = Field(
        "What is 2 + 2?", description="the user's question"
    )
    limits: Annotated[LimitsPart, Drawn(how=_draw_limits)] = Field(
        LimitsPart(), description="limits of a trajectory"
    )
    think: Annotated[Seconds, Drawn(0.0, 0.053, 2.531, share=0.2)] = Field(
        0.5, description="how long the engine takes for a turn"
    )
    faults: Annotated[list[Rule], Drawn(how=_draw_engine_faults, share=0.2)] = Field(
        [], description="fault rules of the engine"
    )

    @model_validator(mode="after")
    def _possible(self) -> RolloutPart:
        self._check_size()
        if self.enough is not None and self.enough > self.count:
            raise ValueError(
                f"enough is {self.enough}, but there are only {self.count} trajectories"
            )
        self._check_faults()
        self._check_format()
        for turn in self.turns:
            if turn.malformed is not None and not _can_be_wrong(turn.malformed, self.format):
                raise ValueError(
                    f"malformed: a call in format {self.format} cannot be wrong by {turn.malformed}"
                )
        return self

    def _check_faults(self) -> None:
        """Raise ValueError for a fault that an engine cannot have."""
        from ....fakes.sglang.faults import possible

        try:
            possible(self.faults)
        except FaultError as error:
            raise ValueError(f"faults: {error}") from None

    def _check_format(self) -> None:
        from sfusion_tools.formats import get_format

        try:
            get_format(self.format)
        except UnknownFormatError as error:
            raise ValueError(f"format: {error}") from None

    def _check_size(self) -> None:
        """Raise ValueError if all trajectories together print or do too much."""
        printed = 0
        calls = 0
        for turn in self.turns:
            printed += sum(program.printed for program in turn.programs)
            calls += max(1, len(turn.programs))
        check_printed(self.count * printed)
        if self.count * calls > _MOST_TURNS:
            raise ValueError(
                f"{self.count * calls:,} turns and calls of all trajectories; "
                f"at most {_MOST_TURNS:,} are possible"
            )
