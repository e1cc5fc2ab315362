"""Promises: what must hold in a run, each judged by a small pure function over the journal."""

from __future__ import annotations

from sfusion.harness.promises.base import Promise
from sfusion.harness.promises.registry import PROMISES, judge, read_promise
from sfusion.harness.promises.story import CallStory, Story
from sfusion.harness.promises.verdict import State, Verdict

__all__ = ["PROMISES", "CallStory", "Promise", "State", "Story", "Verdict", "judge", "read_promise"]
