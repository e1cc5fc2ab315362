"""The base of every part of a scenario: strict, and explained by its own field descriptions."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Misplaced(ValueError):
    """Raised by a check of the whole when one part is wrong; ``path`` says which, so that the line can be told."""

    def __init__(self, message: str, *path: str | int) -> None:
        super().__init__(message)
        self.path = path


class Part(BaseModel):
    """A mapping in a scenario file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
