"""Multi-turn rollouts as the load of a scenario: the fake engine generates, the tool answers."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sfusion.fakes.errors import FaultError
from sfusion.fakes.faults import Rule, Seconds
from sfusion.fakes.faults.pattern import Pattern
from sfusion.fakes.sglang.faults import possible
from sfusion.fakes.sglang.malformed import kinds, malformed
from sfusion.harness.lab.scenarios.base import ScenarioPart
from sfusion.harness.lab.scenarios.program import ProgramPart, check_printed
from sfusion_tools.errors import UnknownFormatError, near
from sfusion_tools.formats import get_format

_CODE = re.compile(r"\{code:([0-9]+)\}")
_MOST_TURNS = 200_000
_FITS = ("fits-1", "fits", "fits+1")


def _bound(value: Any) -> Any:
    if isinstance(value, str) and value.replace(" ", "") in _FITS:
        return value.replace(" ", "")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is not a limit: use a whole number of at least 1, or one of {', '.join(_FITS)}")
    return value


Bound = Annotated[int | str, BeforeValidator(_bound)]
"""A number, or `fits-1`, `fits`, `fits+1`: relative to what the same rollout needs without a limit."""


class LimitsPart(ScenarioPart):
    """The limits of a trajectory; `fits` is what it needs without a limit, `fits-1` one less."""

    max_prompt_len: Bound | None = Field(None, description="maximum tokens of the prompt")
    max_response_len: Bound | None = Field(None, description="maximum tokens after the prompt")
    max_model_len: Bound | None = Field(None, description="maximum tokens of prompt and response together")
    max_tool_response_length: Bound | None = Field(None, description="maximum characters of a tool message")
    tool_response_truncate_side: Literal["left", "right", "middle"] = Field(
        "middle", description="which part of a long tool message is cut"
    )
    max_assistant_turns: int | None = Field(None, ge=1, description="maximum replies of the model")
    max_parallel_calls: int | None = Field(None, ge=1, description="maximum calls executed per turn")
    max_consecutive_invalid_calls: int | None = Field(
        None, ge=1, description="unusable calls in a row that end the trajectory"
    )


class RolloutTurn(ScenarioPart):
    """What the model writes in one turn: text, tool calls, or raw output."""

    say: str = Field("", description="its text; {id} is replaced by the trajectory's id")
    programs: list[ProgramPart] = Field([], description="programs for which it calls the tool")
    sees: Pattern | None = Field(
        None, description="a regular expression that the last tool messages must match; if not, the model gives up"
    )
    malformed: str | None = Field(
        None, description="write the call of the first program wrongly: bad_escape, unbalanced, unknown_tool, ..."
    )
    raw: str | None = Field(
        None,
        description="the whole output as it is, instead of text and calls; {code:1} is replaced by the code of the "
        "first program, escaped for JSON",
    )

    @model_validator(mode="after")
    def _one_way(self) -> RolloutTurn:
        for key in ("call", "repeated"):
            if any(getattr(program, key) for program in self.programs):
                raise ValueError(f"programs: `{key}` is only for the programs of a load")
        if self.malformed is None:
            wrong = [place for place in _CODE.findall(self.raw or "") if not 1 <= int(place) <= len(self.programs)]
            if wrong:
                raise ValueError(f"raw: {{code:{wrong[0]}}} needs a program number {wrong[0]} in `programs`")
            return self
        if self.raw is not None:
            raise ValueError("malformed and raw are two ways to write a turn; give one of them")
        if self.malformed not in kinds():
            raise ValueError(f"malformed: {self.malformed!r} is not a kind; {near(self.malformed, kinds())}")
        if not self.programs:
            raise ValueError("malformed spoils the call of the first program; give `programs`")
        return self

    def raw_text(self, codes: list[str]) -> str:
        """Return ``raw`` with the code of its programs."""
        return _CODE.sub(lambda found: json.dumps(codes[int(found[1]) - 1])[1:-1], self.raw or "")


class RolloutPart(ScenarioPart):
    """Trajectories r001, r002, ...; their calls are called r001.t1.1 and so on."""

    count: int = Field(8, ge=1, le=100_000, description="number of trajectories")
    at_once: int | None = Field(None, ge=1, description="how many run at a time; default: all")
    enough: int | None = Field(None, ge=1, description="cancel the rest when this many are completed (over-sampling)")
    turns: list[RolloutTurn] = Field(
        min_length=1,
        max_length=1000,
        description="what the model does, turn by turn; after the last turn it gives a final answer",
    )
    repeat: bool = Field(False, description="repeat the last turn for ever, like a model in a loop")
    prompt: str = Field("What is 2 + 2?", description="the user's question")
    format: str = Field("hermes", description="tool-call format; see `sfusion parse --help`")
    limits: LimitsPart = Field(LimitsPart(), description="limits of a trajectory")
    think: Seconds = Field(0.5, description="how long the engine takes for a turn")
    faults: list[Rule] = Field([], description="fault rules of the engine")

    @model_validator(mode="after")
    def _possible(self) -> RolloutPart:
        check_printed(self.count * sum(program.printed for turn in self.turns for program in turn.programs))
        if (calls := self.count * sum(max(1, len(turn.programs)) for turn in self.turns)) > _MOST_TURNS:
            raise ValueError(f"{calls:,} turns and calls of all trajectories; at most {_MOST_TURNS:,} are possible")
        if self.enough is not None and self.enough > self.count:
            raise ValueError(f"enough is {self.enough}, but there are only {self.count} trajectories")
        try:
            possible(self.faults)
        except FaultError as error:
            raise ValueError(f"faults: {error}") from None
        try:
            get_format(self.format)
        except UnknownFormatError as error:
            raise ValueError(f"format: {error}") from None
        for turn in self.turns:
            if turn.malformed is not None and malformed(turn.malformed, self.format, 0) is None:
                raise ValueError(f"malformed: a call in format {self.format} cannot be wrong by {turn.malformed}")
        return self
