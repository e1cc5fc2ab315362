"""Runs: tasks are read, selected, adapted, played and judged; results are written to disk and read
back."""

from ...errors import PromisesBroken
from .directory import read_run, write_run, written_run
from .runner import RunResult, play, run_all, run_one, run_scenario
from .tasks import Task, adapt_tasks, read_tasks, select_tasks

__all__ = [
    "PromisesBroken",
    "RunResult",
    "Task",
    "adapt_tasks",
    "play",
    "read_run",
    "read_tasks",
    "run_all",
    "run_one",
    "run_scenario",
    "select_tasks",
    "write_run",
    "written_run",
]
