"""Promises: what must hold in a run. Each is checked by a pure function of the journal."""

from ...core.story import CallStory, Story
from ...core.verdict import How, State, Verdict
from .base import PROMISES, Promise
from .registry import check_promises, read_promise

__all__ = [
    "PROMISES",
    "CallStory",
    "How",
    "Promise",
    "State",
    "Story",
    "Verdict",
    "check_promises",
    "read_promise",
]
