"""Rollouts end to end on the fakes, dumped as training dumps them."""

from __future__ import annotations

from harness.rollouts.dump import request_record, sample_record, sample_text, write_step
from harness.rollouts.plan import RolloutPlan
from harness.rollouts.progress import BarReporter, PlainReporter, Reporter, reporter
from harness.rollouts.run import run_rollouts
from harness.rollouts.tally import Tally

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
