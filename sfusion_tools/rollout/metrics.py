"""What happened to the calls of a trajectory, counted so that a trainer can mask what is not the model's doing."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, Field

from sfusion_tools.outcome import Outcome


class Refusal(StrEnum):
    """Why a call was answered without being executed."""

    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    BAD_ARGUMENTS = "bad_arguments"
    TOO_MANY = "too_many_parallel_calls"

    @property
    def is_invalid(self) -> bool:
        """True when the call itself was wrong: these count towards max_consecutive_invalid_calls."""
        return self is not Refusal.TOO_MANY


class RolloutMetrics(BaseModel):
    """Counts of one trajectory."""

    assistant_turns: int = 0
    user_turns: int = 0
    calls: int = 0
    """Calls found in the model's text, good or bad."""
    executed: int = 0
    refused: Counter[str] = Field(default_factory=Counter)
    """Calls answered with a message instead of being executed, by reason."""
    noticed: Counter[str] = Field(default_factory=Counter)
    """Oddities of the model's text that cost no call, by kind."""
    not_run: int = 0
    """Calls of a turn behind which the trajectory ended: no turn was left to answer them in."""
    outcomes: Counter[str] = Field(default_factory=Counter)
    """Executed calls by the outcome that the tool stated."""
    tool_errors: int = 0
    """Executed calls whose tool raised."""
    shortened_responses: int = 0
    dropped_tokens: int = 0
    """Tokens of tool or user messages, or of an engine that overran, that did not fit any more."""
    retokenised_turns: int = 0
    """Turns whose engine gave text and no ids."""
    release_errors: int = 0
    generation_seconds: float = 0.0
    tool_seconds: float = 0.0

    def count_outcome(self, metrics: Any) -> None:
        """Count the outcome that a tool put into its metrics; a tool that states none is not guessed at."""
        stated = metrics.get("outcome") if isinstance(metrics, dict) else None
        if stated is not None:
            self.outcomes[str(stated)] += 1

    @property
    def infrastructure_failures(self) -> int:
        """Calls whose result says nothing about the model: a trainer should mask this trajectory's reward."""
        known = {outcome.value: outcome for outcome in Outcome}
        failed = sum(n for name, n in self.outcomes.items() if name in known and known[name].is_infrastructure)
        return failed + self.tool_errors
