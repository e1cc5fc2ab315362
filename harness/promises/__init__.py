"""Promises: what must hold in a run, each judged by a small pure function over the journal."""

from __future__ import annotations

from harness.promises.base import Promise
from harness.promises.registry import PROMISES, judge, read_promise
from harness.promises.story import CallStory, Story
from harness.promises.verdict import State, Verdict

__all__ = ["PROMISES", "CallStory", "Promise", "State", "Story", "Verdict", "judge", "read_promise"]
