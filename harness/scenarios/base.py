"""The base of every part of a scenario: strict, and explained by its own field descriptions."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A mapping in a scenario file; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
