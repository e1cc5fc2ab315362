"""Rollouts end to end on the fakes, dumped in verl's format. The names below are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sfusion_tools._lazy import on_first_use as _on_first_use

if TYPE_CHECKING:
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

__getattr__ = _on_first_use(
    __name__,
    {
        "sfusion.harness.rollouts.dump_writer": ["request_record", "sample_record", "sample_text", "write_step"],
        "sfusion.harness.rollouts.run": ["RolloutCounts", "RolloutPlan", "RolloutReporter", "run_rollouts"],
    },
)
