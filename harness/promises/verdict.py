"""The verdict on one promise: held, broken, unknown or not applicable, with a sentence and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["held", "broken", "unknown", "not_applicable"]


EVERYTHING_TOOK_EFFECT = "everything_took_effect"
"""Reported as unknown beside the promises of a run that does not show all that its scenario declares."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one promise. Unknown is not a pass; not applicable is neither a pass nor a failure."""

    promise: str
    state: State
    sentence: str
    evidence: list[dict[str, Any]] = field(default_factory=list)
    """A few events of the journal that show it."""
    count: int = 0
    """How often the promise was broken; the evidence is about the first time."""

    @property
    def held(self) -> bool:
        return self.state == "held"

    @property
    def failed(self) -> bool:
        """Is it broken or unknown?"""
        return self.state in ("broken", "unknown")

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, as in verdict.json."""
        return {
            "promise": self.promise,
            "state": self.state,
            "sentence": self.sentence,
            "count": self.count,
            "evidence": self.evidence,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        return cls(data["promise"], data["state"], data["sentence"], data["evidence"], data["count"])
