"""What a run of rollouts is to do."""

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
    """GSM8K-like problems, a fake engine, the real tool, and a sandbox."""

    out: Path
    problems: int = 64
    """Samples of each step."""
    steps: int = 1
    seed: int = 0
    format: str = "hermes"
    """How the model writes its calls."""
    policy: Policy = field(default_factory=Gsm8kSolver)
    sandboxes: tuple[str, ...] = ()
    """The addresses of real sandboxes, which share the calls; without any a fake one is started."""
    executor: str = "python"
    """How the fake sandbox runs programs: ``python`` really does, ``scripted`` says what they would print."""
    faults: tuple[Rule, ...] = ()
    """What goes wrong: in the fake, or in a proxy before each real sandbox."""
    rate_limit: int = 10
    timeout: float = 30.0
    at_once: int | None = None
    over_sample: float = 0.0
    """Share of further requests that are started; the slowest are cancelled when enough are done."""
    limits: RolloutLimits = field(default_factory=RolloutLimits)
    latency: Latency = field(default_factory=Latency)
    tokenizer: Tokenizer = field(default_factory=ByteTokenizer)

    @property
    def started(self) -> int:
        """Requests started in each step."""
        return self.problems + math.ceil(self.problems * self.over_sample)
