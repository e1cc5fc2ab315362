"""How the outcomes of a trajectory's calls reach verl's trainer.

verl's agent loop drops the metrics of a call. What a tool leaves in ``extra_fields`` of the trajectory reaches the
reward function (in its ``extra_info``) and the batch (in ``non_tensor_batch``). Only the key ``extras`` is safe there:
verl puts it into every batch, while a key of our own would be missing from a worker in which no tool was called, and
verl cannot concatenate batches whose keys differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

EXTRAS = "extras"
KEY = "sfusion"
MEASURED = ("attempts", "permit_wait_s", "backoff_s", "total_s")
"""The metrics of each call that are kept beside its outcome, each in a list of its own."""


def count_call(agent_data: Any, metrics: Mapping[str, Any]) -> None:
    """Add a call to ``extra_fields["extras"]["sfusion"]``; ignore what is not verl's agent data."""
    fields = getattr(agent_data, "extra_fields", None)
    if not isinstance(fields, dict):
        return
    extras = fields.get(EXTRAS)
    if extras is None:
        extras = fields[EXTRAS] = {}
    if not isinstance(extras, dict):
        return  # set by someone else first
    lists: dict[str, list[Any]] = {name: [] for name in ("outcomes", *MEASURED)}
    counts = extras.setdefault(KEY, {"calls": 0, "infrastructure": 0, **lists})
    counts["calls"] += 1
    counts["infrastructure"] += metrics["infrastructure"]
    counts["outcomes"].append(metrics["outcome"])
    for name in MEASURED:
        counts[name].append(metrics[name])
