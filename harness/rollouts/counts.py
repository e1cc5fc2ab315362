"""Counts of the rollouts that have ended so far."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from sfusion_tools.rollout import AsyncRolloutRequest, EndCause
from sfusion_tools.rollout import AsyncRolloutRequestStateEnum as State


@dataclass
class RolloutCounts:
    """Requests, calls and outcomes, summed over every request that has ended, and the scores of the samples."""

    ended: int = 0
    failed: int = 0
    cancelled: int = 0
    calls: int = 0
    tool_errors: int = 0
    infrastructure_failures: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    scores: list[float] = field(default_factory=list)
    first_failure: str | None = None

    def add(self, request: AsyncRolloutRequest) -> None:
        """Count a request that has ended."""
        self.ended += 1
        if request.ended_by is EndCause.CANCELLED:
            self.cancelled += 1
        elif request.state is State.FAILED:
            self.failed += 1
            self.first_failure = self.first_failure or request.failure
        self.calls += request.metrics.calls
        self.tool_errors += request.metrics.tool_errors
        self.outcomes += request.metrics.outcomes
        self.refused += request.metrics.refused
        self.infrastructure_failures += request.metrics.infrastructure_failures

    @property
    def mean_score(self) -> float | None:
        """The mean score, or None before the first sample."""
        return sum(self.scores) / len(self.scores) if self.scores else None

    def outcome_text(self) -> str:
        """Outcome counts in one line, the most frequent first."""
        parts = [f"{name} {count}" for name, count in self.outcomes.most_common()]
        parts += [f"refused:{name} {count}" for name, count in self.refused.most_common()]
        if self.tool_errors:
            parts.append(f"tool raised {self.tool_errors}")
        if self.failed:
            parts.append(f"failed requests {self.failed}")
        if self.cancelled:
            parts.append(f"cancelled {self.cancelled}")
        return ", ".join(parts) or "no calls yet"
