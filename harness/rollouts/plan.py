"""The settings of a run of rollouts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from sfusion.fakes.faults import Rule
from sfusion.fakes.sglang import Gsm8kSolver, Latency, Policy
from sfusion_tools.rollout import RolloutLimits
from sfusion_tools.tokenizers import ByteTokenizer, Tokenizer


@dataclass(frozen=True)
class RolloutPlan:
    """GSM8K-like problems for the fake engine, the real tool and a sandbox."""

    out: Path
    problems: int = 64
    """Samples per step."""
    steps: int = 1
    seed: int = 0
    format: str = "hermes"
    """The tool-call format that the model writes."""
    policy: Policy = field(default_factory=Gsm8kSolver)
    sandboxes: tuple[str, ...] = ()
    """Addresses of real sandboxes, which share the calls; if empty, a fake one is started."""
    executor: str = "python"
    """What the fake sandbox does with programs: ``python`` runs them, ``scripted`` answers with what they print."""
    faults: tuple[Rule, ...] = ()
    """Fault rules for the fake, or for a proxy in front of each real sandbox."""
    rate_limit: int = 10
    timeout: float = 30.0
    at_once: int | None = None
    over_sample: float = 0.0
    """Extra requests to start, as a share of ``problems``; the slowest are cancelled once enough have completed."""
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    latency: Latency = field(default_factory=Latency)
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)

    @property
    def requests_per_step(self) -> int:
        """``problems``, plus those started only to be cancelled."""
        return self.problems + math.ceil(self.problems * self.over_sample)

    @property
    def requests(self) -> int:
        """Requests started in all steps together."""
        return self.steps * self.requests_per_step
