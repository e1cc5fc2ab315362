"""Counts of what happened to a trajectory's calls, so that a trainer can mask what was not the model's doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
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
    """The counts of one trajectory."""

    assistant_turns: int = 0
    user_turns: int = 0
    calls: int = 0
    """Calls found in the model's text, good or bad."""
    executed: int = 0
    refused: Counter[str] = Field(default_factory=Counter)
    """Calls answered with a message instead of being executed, by reason."""
    noticed: Counter[str] = Field(default_factory=Counter)
    """Other oddities of the model's text, by kind; no call was refused for them."""
    not_run: int = 0
    """Calls of the turn in which the trajectory ended: there was no turn left to answer them."""
    outcomes: Counter[str] = Field(default_factory=Counter)
    """Executed calls, by the outcome in the tool's metrics."""
    call_metrics: list[dict[str, Any]] = Field(default_factory=list)
    """What the tools returned as metrics, for each executed call that returned any."""
    tool_errors: int = 0
    """Executed calls whose tool raised."""
    shortened_responses: int = 0
    dropped_tokens: int = 0
    """Tokens that did not fit: of tool or user messages, or of an engine that generated too many."""
    retokenised_turns: int = 0
    """Turns for which the engine returned text but no ids."""
    release_errors: int = 0
    generation_seconds: float = 0.0
    tool_seconds: float = 0.0

    def add_call(self, metrics: Mapping[str, Any]) -> None:
        """Keep the metrics of an executed call and count its outcome, if there is one."""
        if metrics:
            self.call_metrics.append(dict(metrics))
        if metrics.get("outcome") is not None:
            self.outcomes[str(metrics["outcome"])] += 1

    @property
    def infrastructure_failures(self) -> int:
        """Calls whose result says nothing about the model; if there are any, mask this trajectory's reward."""
        known = {outcome.value: outcome for outcome in Outcome}
        failed = sum(n for name, n in self.outcomes.items() if name in known and known[name].is_infrastructure)
        return failed + self.tool_errors
