"""What an OpenEnv server sends: observations, states, errors and schemas.

The environment that is faked runs the ``code`` of an action; its reward is 1 if the exit code is 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..sandbox.protocol import CommandResult
from ..wire.message import Answer


class CodeAction(BaseModel):
    """Code for the environment to run."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    metadata: dict[str, Any] = Field(default_factory=dict)
    """Additional metadata for the action"""
    code: str


class CodeObservation(BaseModel):
    """What the code printed."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    done: bool = False
    """Whether the episode has terminated"""
    reward: bool | int | float | None = None
    """Reward signal from the last action"""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Additional metadata for the observation"""
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


class CodeState(BaseModel):
    """Base class for environment state.

    Represents internal environment state, separate from observations.
    """

    model_config = ConfigDict(extra="allow", title="State", use_attribute_docstrings=True)

    episode_id: str | None = None
    """Unique identifier for the current episode"""
    step_count: int = Field(default=0, ge=0)
    """Number of steps taken in the current episode"""


SCHEMAS = {
    "action": CodeAction.model_json_schema(),
    "observation": CodeObservation.model_json_schema(),
    "state": CodeState.model_json_schema(),
}
METADATA = {
    "name": "CodeEnvironment",
    "description": "Runs code, faked by sfusion",
    "readme_content": None,
    "version": "1.0.0",
    "author": None,
    "documentation_url": None,
}


def observed(result: CommandResult | None = None) -> dict[str, Any]:
    """The observation after a step; without a result, the one after a reset."""
    seen = CodeObservation()
    if result is not None:
        code = result.return_code
        seen = CodeObservation(
            reward=1.0 if code == 0 else 0.0,
            stdout=result.stdout or "",
            stderr=result.stderr or "",
            exit_code=-1 if code is None else code,
        )
    content = seen.model_dump(include={"stdout", "stderr", "exit_code"})
    return {"observation": content, "reward": seen.reward, "done": seen.done}


def observation(result: CommandResult | None = None) -> Answer:
    return Answer.json({"type": "observation", "data": observed(result)})


def state(content: Mapping[str, Any]) -> Answer:
    return Answer.json({"type": "state", "data": dict(content)})


def problems(error: ValidationError) -> list[dict[str, Any]]:
    """What is wrong with a message, as the server lists it."""
    return [dict(problem) for problem in error.errors()]
