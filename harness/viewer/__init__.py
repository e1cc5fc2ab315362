"""The viewer of rollout dumps: the parts that read them; the terminal application is in ``harness.viewer.app``."""

from __future__ import annotations

from harness.viewer.dump import StepFile, open_dump
from harness.viewer.errors import NoDump, ViewerError
from harness.viewer.filters import BadFilter, Filter, read_filter
from harness.viewer.lines import LineIndex
from harness.viewer.sample import Sample, read_sample
from harness.viewer.turns import CallView, Part, Turn, read_call, split_turns

__all__ = [
    "BadFilter",
    "CallView",
    "Filter",
    "LineIndex",
    "NoDump",
    "Part",
    "Sample",
    "StepFile",
    "Turn",
    "ViewerError",
    "open_dump",
    "read_call",
    "read_filter",
    "read_sample",
    "split_turns",
]
