"""Runs: one cell of a scenario in one world, judged, written down, and played again."""

from __future__ import annotations

from harness.runs.directory import read_run, write_run
from harness.runs.plan import Task, plan
from harness.runs.result import RunResult
from harness.runs.runner import run_all, run_one

__all__ = ["RunResult", "Task", "plan", "read_run", "run_all", "run_one", "write_run"]
