"""Multi-turn rollouts as the load of a scenario: the fake engine speaks, the tool answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sfusion.fakes.faults import Rule, Seconds
from sfusion.harness.scenarios.base import ScenarioPart
from sfusion.harness.scenarios.program import ProgramPart

_FITS = ("fits-1", "fits", "fits+1")


def _bound(value: Any) -> Any:
    if isinstance(value, str) and value.replace(" ", "") in _FITS:
        return value.replace(" ", "")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{value!r} is no bound: give a whole number of at least 1, or one of {', '.join(_FITS)}")
    return value


Bound = Annotated[int | str, BeforeValidator(_bound)]
"""A number, or a number relative to what the same rollout needs without it: one too few, just enough, one more."""


class LimitsPart(ScenarioPart):
    """The bounds of a trajectory; `fits` is what it needs when it has no bound, `fits-1` one too few."""

    max_prompt_len: Bound | None = Field(None, description="tokens of the prompt")
    max_response_len: Bound | None = Field(None, description="tokens behind the prompt")
    max_model_len: Bound | None = Field(None, description="tokens of prompt and response together")
    max_tool_response_length: Bound | None = Field(None, description="characters kept of a tool's text")
    tool_response_truncate_side: Literal["left", "right", "middle"] = Field(
        "middle", description="the side of a tool's text that is cut away"
    )
    max_assistant_turns: int | None = Field(None, ge=1, description="replies of the model")
    max_parallel_calls: int | None = Field(None, ge=1, description="calls executed per turn")
    max_consecutive_invalid_calls: int | None = Field(None, ge=1, description="unusable calls in a row that end it")


class TurnPart(ScenarioPart):
    """What the model says in one turn."""

    say: str = Field("", description="its words; {id} becomes the trajectory's id")
    programs: list[ProgramPart] = Field([], description="programs that it calls the tool with, in this turn")
    raw: str | None = Field(None, description="text as it is, instead of words and calls: broken calls, for example")


class RolloutPart(ScenarioPart):
    """Trajectories r001, r002, ...; their calls are named r001.t1.1 and so on."""

    count: int = Field(8, ge=1, le=100_000, description="trajectories")
    at_once: int | None = Field(None, ge=1, description="how many run at a time; all when not given")
    enough: int | None = Field(None, ge=1, description="cancel the rest when so many are completed (over-sampling)")
    turns: list[TurnPart] = Field(
        min_length=1, description="what the model says, turn by turn; after the last turn it says it again"
    )
    repeat: bool = Field(False, description="say the last turn for ever, as a model in a loop does")
    prompt: str = Field("What is 2 + 2?", description="what the user asks")
    format: str = Field("hermes", description="how calls are written; see `sfusion parse --help`")
    limits: LimitsPart = Field(LimitsPart(), description="bounds of a trajectory")
    think: Seconds = Field(0.5, description="seconds the engine takes for a turn")
    faults: list[Rule] = Field([], description="faults of the engine")

    @model_validator(mode="after")
    def _possible(self) -> RolloutPart:
        if self.enough is not None and self.enough > self.count:
            raise ValueError(f"enough is {self.enough}, but there are only {self.count} trajectories")
        return self
