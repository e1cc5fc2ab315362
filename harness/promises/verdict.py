"""The verdict on one promise: held, broken or unknown, with a sentence and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["held", "broken", "unknown"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a run shows about a promise. Unknown is not a pass."""

    promise: str
    state: State
    sentence: str
    """What was found, for a person."""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    """The events that show it, at most a handful, as the journal has them."""
    count: int = 0
    """How often it was broken; the evidence is of the first."""

    @property
    def held(self) -> bool:
        """Did the promise hold?"""
        return self.state == "held"

    def as_dict(self) -> dict[str, Any]:
        """Plain data, as in verdict.json."""
        return {
            "promise": self.promise,
            "state": self.state,
            "sentence": self.sentence,
            "count": self.count,
            "evidence": self.evidence,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Verdict:
        """Read what ``as_dict`` gave."""
        return cls(data["promise"], data["state"], data["sentence"], data["evidence"], data["count"])
