"""Runs: one cell of a scenario in one world, judged, written down, and played again."""

from __future__ import annotations

from sfusion.harness.runs.directory import read_run, write_run
from sfusion.harness.runs.plan import Task, plan
from sfusion.harness.runs.result import RunResult
from sfusion.harness.runs.runner import run_all, run_one

__all__ = ["RunResult", "Task", "plan", "read_run", "run_all", "run_one", "write_run"]
