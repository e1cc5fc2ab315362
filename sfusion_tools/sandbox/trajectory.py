"""What verl's trainer is told of a trajectory's calls.

verl's agent loop drops the metrics of a call. What a tool leaves in ``extra_fields`` of the trajectory reaches the
reward function (in its ``extra_info``) and the batch (in ``non_tensor_batch``). Only the key ``extras`` is safe there:
verl puts it into every batch, while a key of our own would be missing from a worker in which no tool was called, and
verl cannot join batches whose keys differ.
"""

from __future__ import annotations

from typing import Any

from sfusion_tools.outcome import Outcome

EXTRAS = "extras"
KEY = "sfusion"


def note_ending(agent_data: Any, outcome: Outcome) -> None:
    """Count a call's ending in ``extra_fields["extras"]["sfusion"]``; what is not verl's agent data is left alone."""
    fields = getattr(agent_data, "extra_fields", None)
    if not isinstance(fields, dict):
        return
    extras = fields.get(EXTRAS)
    if extras is None:
        extras = fields[EXTRAS] = {}
    if not isinstance(extras, dict):
        return  # somebody else's; theirs was there first
    noted = extras.setdefault(KEY, {"calls": 0, "infrastructure": 0, "outcomes": []})
    noted["calls"] += 1
    noted["infrastructure"] += outcome.is_infrastructure
    noted["outcomes"].append(outcome.value)
