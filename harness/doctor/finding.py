"""A finding: what was seen, what it does to training, what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is for a training run."""

    BREAKS = "breaks"
    """Calls fail or lie: training goes on and learns from garbage."""
    HURTS = "hurts"
    """Training works, but slower than it could, or wrongly in a corner."""
    NOTE = "note"
    """Good to know."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that the doctor found."""

    id: str
    severity: Severity
    seen: str
    """What was seen, with figures."""
    training: str
    """What it does to training."""
    change: str
    """What to change."""

    @property
    def breaks(self) -> bool:
        """Does it break training?"""
        return self.severity is Severity.BREAKS


def breaks(id: str, *, seen: str, training: str, change: str) -> Finding:
    """A finding that breaks training."""
    return Finding(id, Severity.BREAKS, seen, training, change)


def hurts(id: str, *, seen: str, training: str, change: str) -> Finding:
    """A finding that hurts training."""
    return Finding(id, Severity.HURTS, seen, training, change)


def note(id: str, *, seen: str, training: str, change: str) -> Finding:
    """A finding that is good to know."""
    return Finding(id, Severity.NOTE, seen, training, change)
