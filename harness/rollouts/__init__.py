"""Rollouts end to end on the fakes, dumped as training dumps them."""

from __future__ import annotations

from sfusion.harness.rollouts.dump import request_record, sample_record, sample_text, write_step
from sfusion.harness.rollouts.plan import RolloutPlan
from sfusion.harness.rollouts.progress import BarReporter, PlainReporter, Reporter, reporter
from sfusion.harness.rollouts.run import run_rollouts
from sfusion.harness.rollouts.tally import Tally

__all__ = [
    "BarReporter",
    "PlainReporter",
    "Reporter",
    "RolloutPlan",
    "Tally",
    "reporter",
    "request_record",
    "run_rollouts",
    "sample_record",
    "sample_text",
    "write_step",
]
