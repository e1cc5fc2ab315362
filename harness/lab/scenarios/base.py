"""The base class of every part of a scenario file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Misplaced(ValueError):
    """Raised by a check across several parts; ``path`` leads to the wrong one, so that its line can be reported."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class ScenarioPart(BaseModel):
    """A mapping in a scenario file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
