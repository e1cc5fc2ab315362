"""Rollouts end to end on the fakes, dumped in verl's format."""

from __future__ import annotations

from sfusion.harness.rollouts.dump_writer import request_record, sample_record, sample_text, write_step
from sfusion.harness.rollouts.run import RolloutCounts, RolloutPlan, RolloutReporter, run_rollouts

__all__ = [
    "RolloutCounts",
    "RolloutPlan",
    "RolloutReporter",
    "request_record",
    "run_rollouts",
    "sample_record",
    "sample_text",
    "write_step",
]
