"""A toy training as the load of a scenario: a policy of a few behaviours learns from what its calls
return."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ....fakes.faults import Distribution, Seconds
from ....fakes.fields import NotHunted, NotShrunk
from .base import ScenarioPart

_MOST_SAMPLES = 200_000
"""Of a whole training; chosen: it ends within minutes."""
_TOY = NotHunted("a training takes too long for a hunt")


class BehaviourPart(ScenarioPart):
    """What the toy may do with a question, as one of its choices."""

    name: Annotated[str, _TOY, NotShrunk("a name is not simpler than another")] = Field(
        min_length=1, max_length=40, description="its name in tables and plots"
    )
    share: Annotated[float, _TOY] = Field(
        1.0, ge=1e-6, le=1e6, description="how likely it is at first, relative to the others"
    )
    right: Annotated[float, _TOY, NotShrunk("no chance is simpler than another")] = Field(
        ge=0, le=1, description="its chance to be right if no call is lost"
    )
    calls: Annotated[int, _TOY] = Field(
        0, ge=0, le=20, description="tool calls that it makes, one after the other"
    )
    again: Annotated[int, _TOY] = Field(
        0, ge=0, le=20, description="lost calls that it makes again before it gives up"
    )
    guess: Annotated[float, _TOY] = Field(
        0.0, ge=0, le=1, description="its chance to be right after it gave up"
    )


_BEHAVIOURS = [
    BehaviourPart(name="head", share=2, right=0.6),
    BehaviourPart(name="call", right=0.95, calls=1),
    BehaviourPart(name="check", right=0.99, calls=2),
]


class TrainingPart(ScenarioPart):
    """A toy training: steps of prompts with groups of siblings, and an update after each step. See
    docs/learning.md."""

    steps: Annotated[int, _TOY] = Field(40, ge=1, le=10_000, description="number of updates")
    prompts: Annotated[int, _TOY] = Field(4, ge=1, le=10_000, description="questions per step")
    group: Annotated[int, _TOY] = Field(8, ge=1, le=1_000, description="siblings per question")
    estimator: Annotated[
        Literal["grpo", "dr_grpo", "rloo", "reinforce_plus_plus_baseline"], _TOY
    ] = Field(
        "grpo",
        description="how scores become advantages, as in verl; dr_grpo is grpo without the std",
    )
    lost: Annotated[Literal["zero", "mask", "exclude", "drop"], _TOY] = Field(
        "zero",
        description="what the trainer does with a sample whose last call was lost: train "
        "on its score (zero), take it "
        "out of the loss (mask) or of loss and baseline (exclude), drop its group (drop)",
    )
    divide_by: Annotated[Literal["all", "kept"], _TOY] = Field(
        "all",
        description=(
            "the loss is divided by all samples of the step, or by those that are kept in it"
        ),
    )
    learning_rate: Annotated[float, _TOY] = Field(
        1.0, gt=0, le=100, description="factor of an update"
    )
    think: Annotated[Seconds, _TOY] = Field(0.5, description="how long the engine takes for a turn")
    seconds: Annotated[Distribution, _TOY] = Field(
        Distribution(numbers=(0.2,)), description="how long the program of a call runs"
    )
    update_time: Annotated[Seconds, _TOY] = Field(
        5.0, description="pause for the update after each step"
    )
    behaviours: Annotated[list[BehaviourPart], _TOY] = Field(
        _BEHAVIOURS,
        min_length=2,
        max_length=20,
        description="what the toy may do; default: answer from the head, call once, call twice",
    )

    @model_validator(mode="after")
    def _possible(self) -> TrainingPart:
        samples = self.steps * self.prompts * self.group
        if samples > _MOST_SAMPLES:
            raise ValueError(f"{samples:,} samples in all; at most {_MOST_SAMPLES:,} are possible")
        names = [behaviour.name for behaviour in self.behaviours]
        if len(set(names)) != len(names):
            raise ValueError(f"behaviours: each name may occur only once, found {', '.join(names)}")
        if not any(behaviour.calls for behaviour in self.behaviours):
            raise ValueError("behaviours: none of them calls the tool; give one of them `calls: 1`")
        return self
