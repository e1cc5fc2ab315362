"""The viewer of rollout dumps. This package reads the dumps; its module ``app`` is the application."""

from __future__ import annotations

from sfusion.harness.errors import BadFilter, NoDump
from sfusion.harness.rollouts.viewer.filters import Filter, read_filter
from sfusion.harness.rollouts.viewer.sample import (
    CallView,
    LineIndex,
    Sample,
    StepFile,
    TurnPart,
    TurnView,
    open_dump,
    read_call,
    read_sample,
    split_turns,
)

__all__ = [
    "BadFilter",
    "CallView",
    "Filter",
    "LineIndex",
    "NoDump",
    "Sample",
    "StepFile",
    "TurnPart",
    "TurnView",
    "open_dump",
    "read_call",
    "read_filter",
    "read_sample",
    "split_turns",
]
