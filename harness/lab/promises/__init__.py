"""Promises: what must hold in a run. Each is judged by a pure function of the journal."""

from sfusion.harness.lab.promises.base import PROMISES, Promise
from sfusion.harness.lab.promises.registry import judge, read_promise
from sfusion.harness.lab.promises.story import CallStory, Story
from sfusion.harness.lab.promises.verdict import How, State, Verdict

__all__ = ["PROMISES", "CallStory", "How", "Promise", "State", "Story", "Verdict", "judge", "read_promise"]
