"""How the outcomes of a trajectory's calls reach verl's trainer.

verl's agent loop drops the metrics of a call. What a tool leaves in ``extra_fields`` of the trajectory reaches the
reward function (in its ``extra_info``) and the batch (in ``non_tensor_batch``). Only the key ``extras`` is safe there:
verl puts it into every batch, while a key of our own would be missing from a worker in which no tool was called, and
verl cannot concatenate batches whose keys differ.
"""

from __future__ import annotations

from typing import Any

from sfusion_tools.outcome import Outcome

EXTRAS = "extras"
KEY = "sfusion"


def count_outcome(agent_data: Any, outcome: Outcome) -> None:
    """Count a call's outcome in ``extra_fields["extras"]["sfusion"]``; ignore what is not verl's agent data."""
    fields = getattr(agent_data, "extra_fields", None)
    if not isinstance(fields, dict):
        return
    extras = fields.get(EXTRAS)
    if extras is None:
        extras = fields[EXTRAS] = {}
    if not isinstance(extras, dict):
        return  # set by someone else first
    counts = extras.setdefault(KEY, {"calls": 0, "infrastructure": 0, "outcomes": []})
    counts["calls"] += 1
    counts["infrastructure"] += outcome.is_infrastructure
    counts["outcomes"].append(outcome.value)
