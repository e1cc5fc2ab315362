"""Episodes as the load of a scenario: each creates a sandbox, takes its steps in it, and deletes
it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from ....fakes.faults import Distribution, Seconds
from ....fakes.fields import NotHunted, NotShrunk
from .base import ScenarioPart

FACES = ("daytona", "openenv", "e2b")
"""The services of sandboxes that can be faked."""
Face = Literal["daytona", "openenv", "e2b"]
_MOST_EPISODES = 10_000
"""Chosen: a run of so many still ends within minutes in virtual time."""
_MOST_AT_ONCE = 1_000
"""Chosen: a thread for each of them fits into one process."""
_NO_HUNT = NotHunted("a hunt judges our own tool, which has no episodes")


def _read_command(value: object) -> object:
    return {} if value is None else value


class CommandPart(ScenarioPart):
    """A command of an episode: it prints a text that occurs nowhere else."""

    seconds: Annotated[Distribution, _NO_HUNT] = Field(
        Distribution(numbers=(0.0,)), description="how long it runs"
    )
    exit: Annotated[int, _NO_HUNT] = Field(0, ge=0, le=255, description="its exit code")


class StepPart(ScenarioPart):
    """One step of an episode: exactly one of exec, write and read, in all episodes or some."""

    exec: Annotated[CommandPart | None, BeforeValidator(_read_command), _NO_HUNT] = Field(
        None, description="run a command: {seconds: 500ms, exit: 0}"
    )
    write: Annotated[str | None, _NO_HUNT, NotShrunk("a name")] = Field(
        None, min_length=1, max_length=100, description="write a file of this name"
    )
    read: Annotated[str | None, _NO_HUNT, NotShrunk("a name")] = Field(
        None, min_length=1, max_length=100, description="read a file of this name"
    )

    only: Annotated[Literal["odd", "even"] | None, _NO_HUNT] = Field(
        None, description="take it in every second episode: the first, third, ... or the others"
    )

    @model_validator(mode="after")
    def _one(self) -> StepPart:
        given = sorted(self.model_fields_set - {"only"})
        if len(given) != 1:
            found = ", ".join(given) or "none"
            raise ValueError(f"a step is exactly one of exec, write and read; found {found}")
        return self

    def is_in(self, number: int) -> bool:
        """Is it a step of the episode with this number?"""
        return self.only is None or (self.only == "odd") == (number % 2 == 1)


_STEPS = [StepPart(exec=CommandPart())]
"""An episode of one command."""


class EpisodesPart(ScenarioPart):
    """Episodes that a client plays: each creates a sandbox, takes the steps in it, returns a score
    and deletes it. See docs/lifecycle.md."""

    count: Annotated[int, _NO_HUNT] = Field(
        16, ge=1, le=_MOST_EPISODES, description="number of episodes, called e0001, e0002, ..."
    )
    concurrency: Annotated[int, _NO_HUNT] = Field(
        8, ge=1, le=_MOST_AT_ONCE, description="how many are played at once"
    )
    think: Annotated[Distribution, _NO_HUNT] = Field(
        Distribution(numbers=(0.0,)),
        description="pause before each episode, and of a client between two steps",
    )
    deadline: Annotated[Seconds | None, _NO_HUNT] = Field(
        None, gt=0, description="an episode that takes longer is cancelled"
    )
    steps: Annotated[list[StepPart], _NO_HUNT] = Field(
        _STEPS,
        min_length=1,
        max_length=100,
        description="what each episode does in its sandbox, in this order",
    )
    settle: Annotated[Seconds, _NO_HUNT] = Field(
        1.0, description="time after the last episode in which a client may still delete"
    )

    def name(self, number: int) -> str:
        """Return the name of an episode, numbered from 1."""
        return f"e{number:04d}"
