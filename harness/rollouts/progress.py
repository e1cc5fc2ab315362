"""The progress of ``sfusion rollout``."""

from __future__ import annotations

from typing import TextIO

from sfusion.harness.rollouts.counts import RolloutCounts
from sfusion.harness.terminal import ProgressReporter


class RolloutReporter(ProgressReporter):
    """Shows how far the rollouts are; in a build log, one line per tenth of them."""

    def __init__(self, out: TextIO, total: int) -> None:
        super().__init__(out, total, "rollouts")
        self._tenths = 0

    def update(self, step: int, counts: RolloutCounts, seconds: float) -> None:
        """Show the counts of a run that started ``seconds`` ago and is at ``step``."""
        rates = "–/s"
        if seconds > 0:
            rates = f"{counts.ended / seconds:.1f} requests/s, {counts.calls / seconds:.1f} calls/s"
        tenths, line = counts.ended * 10 // max(self._total, 1), ""
        if tenths > self._tenths:
            self._tenths = tenths
            line = f"step {step}: {counts.ended}/{self._total} requests, {rates}: {counts.outcome_text()}"
        self.progress(counts.ended, f"step {step}  {rates}  {counts.outcome_text()}", line=line)
