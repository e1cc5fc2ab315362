"""Promises: what must hold in a run. Each is judged by a pure function of the journal."""

from .base import PROMISES, Promise
from .registry import judge, read_promise
from .story import CallStory, Story
from .verdict import How, State, Verdict

__all__ = [
    "PROMISES",
    "CallStory",
    "How",
    "Promise",
    "State",
    "Story",
    "Verdict",
    "judge",
    "read_promise",
]
