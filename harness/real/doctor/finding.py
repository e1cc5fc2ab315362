"""A finding: what was observed, what it does to training, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial


class Severity(StrEnum):
    """How bad a finding is for a training run."""

    BREAKS = "breaks"
    """Calls fail or return wrong results: training continues and learns from garbage."""
    HURTS = "hurts"
    """Training works, but more slowly than it could, or with wrong results in some cases."""
    NOTE = "note"
    """Worth knowing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check. The three texts are shown under the labels seen, training and change."""

    id: str
    severity: Severity
    seen: str
    """What was observed, with numbers."""
    training: str
    """The effect on training."""
    change: str
    """What to do about it."""

    @property
    def breaks(self) -> bool:
        return self.severity is Severity.BREAKS


breaks = partial(Finding, severity=Severity.BREAKS)
hurts = partial(Finding, severity=Severity.HURTS)
note = partial(Finding, severity=Severity.NOTE)
