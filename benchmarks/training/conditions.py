"""What is varied: the start of the model, what its sandbox loses, and what the trainer does."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from .tasks import Kind, Lessons

StartName = Literal["noisy", "decision", "natural", "needed", "several"]


@dataclass(frozen=True, slots=True)
class Start:
    """How a model is taught before training, and what of it training may change."""

    lessons: Lessons
    head_enough: float | None = None
    """Teaching ends once the head is right this often."""
    decision_only: bool = False
    """Only the token that decides between head and tool is in the loss. (The weights are shared, so
    that skills drift a little all the same.)"""

    @property
    def kind(self) -> Kind:
        return self.lessons.kind


_NOISY = Lessons("product", head=0.5, head_wrong=0.5)
STARTS: dict[StartName, Start] = {
    "noisy": Start(_NOISY),
    "decision": Start(_NOISY, decision_only=True),
    "natural": Start(Lessons("product", head=0.5), head_enough=0.35),
    "needed": Start(Lessons("secret", head=0.5)),
    "several": Start(Lessons("looks", head=0.0)),
}
"""noisy: the model knows more than it shows. decision: the same, but skills cannot change.
natural: teaching stopped early. needed: the head can only guess. several: one call is right in 62 %
of the cases, four in nearly all."""

Handling = Literal["zero", "mask", "exclude", "drop"]


@dataclass(frozen=True, slots=True)
class Condition:
    """One training."""

    start: StartName
    seed: int
    lost: Handling = "zero"
    share: float = 0.0
    """Of requests that the sandbox answers with 500."""
    outage: tuple[int, int] | None = None
    """First and last step in which it answers nothing else."""
    quota: int | None = None
    """Requests in flight beyond which a gateway answers 429."""
    attempts: int = 1
    rate: float = 5e-5
    kl: float = 0.0
    """Coefficient of the distance to the taught model."""
    std: bool = True
    """Divide advantages by the group's std, as GRPO does."""

    @property
    def name(self) -> str:
        """A name that tells what differs from a training without faults."""
        parts: list[str] = [self.start, self.lost]
        if self.share:
            parts.append(f"f{self.share:g}")
        if self.outage:
            parts.append(f"outage{self.outage[0]}-{self.outage[1]}")
        if self.quota is not None:
            parts.append(f"quota{self.quota}")
        if self.attempts > 1:
            parts.append(f"attempts{self.attempts}")
        if self.kl:
            parts.append(f"kl{self.kl:g}")
        if not self.std:
            parts.append("no-std")
        return f"{'-'.join(parts)}-r{self.rate:g}-s{self.seed}"

    @property
    def faultless(self) -> bool:
        return not self.share and self.outage is None and self.quota is None

    def faults(self, step: int) -> list[dict[str, Any]]:
        """Return the fault rules of one step."""
        if not step:
            return []
        if self.outage is not None and self.outage[0] <= step <= self.outage[1]:
            return [{"name": "outage", "what": {"status": 503}}]
        if self.share:
            return [{"name": "lost", "probability": self.share, "what": {"status": 500}}]
        return []

    def as_data(self) -> dict[str, Any]:
        return asdict(self)
