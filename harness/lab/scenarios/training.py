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

_ABOUT_CALLS = ("again", "guess", "tokens_lost", "length", "provokes")
"""Keys of a behaviour that mean nothing without calls."""


class BehaviourPart(ScenarioPart):
    """What the toy may do with a question, as one of its choices."""

    name: Annotated[str, _TOY, NotShrunk("a name is not simpler than another")] = Field(
        min_length=1, max_length=40, description="its name in tables and plots"
    )
    share: Annotated[float, _TOY] = Field(
        1.0, ge=1e-6, le=1e6, description="how likely it is at first, relative to the others"
    )
    right: Annotated[float, _TOY, NotShrunk("no chance is simpler than another")] = Field(
        ge=0, le=1, description="its chance to be right at the start, if no call is lost"
    )
    best: Annotated[float, _TOY, NotShrunk("no chance is simpler than another")] = Field(
        1.0, ge=0, le=1, description="the chance to be right that it can reach at most by training"
    )
    learns: Annotated[float, _TOY] = Field(
        1.0,
        ge=0,
        le=100,
        description="how fast its chance to be right is trained; 1: as the choice between "
        "behaviours, 0: it stands still",
    )
    spread: Annotated[float, _TOY] = Field(
        0.0,
        ge=0,
        le=10,
        description="how much easier or harder for it one question is than another: the standard "
        "deviation of log(right / wrong) over the questions",
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
    tokens: Annotated[int, _TOY] = Field(
        1, ge=1, le=1_000_000, description="how long its samples are; see `aggregation`"
    )
    tokens_lost: Annotated[int | None, _TOY] = Field(
        None,
        ge=1,
        le=1_000_000,
        description="how long they are where it gave up; default: as long as the others",
    )
    length: Annotated[float, _TOY] = Field(
        1.0,
        gt=0,
        le=1_000,
        description="how many times as long as `seconds` its programs run; a longer one is lost "
        "more often",
    )
    provokes: Annotated[float, _TOY] = Field(
        0.0,
        ge=0,
        le=1,
        description="its chance to write a program that never ends where its attempt would be "
        "wrong; see `endless`",
    )

    @model_validator(mode="after")
    def _possible(self) -> BehaviourPart:
        if self.right > self.best:
            raise ValueError(f"right: {self.right:g} is more than its best, {self.best:g}")
        given = [key for key in _ABOUT_CALLS if key in self.model_fields_set]
        if given and not self.calls:
            raise ValueError(f"{given[0]}: is about calls, but this behaviour makes none")
        return self


_BEHAVIOURS = [
    BehaviourPart(name="head", share=2, right=0.6, best=0.8),
    BehaviourPart(name="call", right=0.95, calls=1),
    BehaviourPart(name="check", right=0.99, calls=2),
]
"""A model that answers 60 % without its tool and can learn to answer 80 % (chosen)."""


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
    aggregation: Annotated[
        Literal["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"], _TOY
    ] = Field(
        "token-mean",
        description="how the loss adds up `tokens`, as in verl: seq-mean-token-mean divides each "
        "sample by its own length, the others treat the choices of short and long samples alike",
    )
    learning_rate: Annotated[float, _TOY] = Field(
        1.0, gt=0, le=100, description="factor of an update"
    )
    kl: Annotated[float, _TOY] = Field(
        0.0, ge=0, le=100, description="how strongly the loss holds the policy to its start"
    )
    format_reward: Annotated[float, _TOY] = Field(
        0.0,
        ge=0,
        le=10,
        description="what a sample that states an answer gets, right or wrong, beside the 1 for a "
        "right one; one that gives up gets nothing",
    )
    endless: Annotated[Literal["scored", "lost"], _TOY] = Field(
        "scored",
        description="what becomes of a sample whose program never ends (`provokes`): the sandbox "
        "ends the program and the sample is scored, or it counts as lost like any other",
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
