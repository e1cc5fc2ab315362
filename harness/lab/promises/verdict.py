"""The verdict on one promise: held, broken, unknown or not applicable, with a sentence and the evidence."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

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
    def from_dict(cls, data: Any) -> Verdict:
        """Read what ``as_dict`` returned; raise ValueError for anything else."""
        kinds = {"promise": str, "state": str, "sentence": str, "evidence": list, "count": int}
        if not isinstance(data, dict):
            raise ValueError(f"a verdict is a mapping, found {data!r:.80}")
        for key, kind in kinds.items():
            if not isinstance(data.get(key), kind):
                raise ValueError(f"{key} of a verdict is a {kind.__name__}, found {data.get(key)!r:.80}")
        if data["state"] not in get_args(State) or not all(isinstance(one, dict) for one in data["evidence"]):
            raise ValueError(f"the state of a verdict is one of {', '.join(get_args(State))}, its evidence mappings")
        return cls(**{key: data[key] for key in kinds})
