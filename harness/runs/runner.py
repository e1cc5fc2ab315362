"""Runs tasks, in this process or in several, and judges them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from sfusion.harness.errors import MissingWorld
from sfusion.harness.journal import Journal, first_difference
from sfusion.harness.promises import judge
from sfusion.harness.runs.plan import Task
from sfusion.harness.runs.result import RunResult
from sfusion.harness.scenarios.model import Scenario

World = Callable[[Scenario], Journal]
"""Where a scenario runs."""


def run_one(task: Task, *, twice: bool = False, world: World | None = None) -> RunResult:
    """Run and judge one task; with ``twice`` run it again and compare the journals byte by byte.

    ``world`` runs it instead of the world that the task names: a cluster that is there already, for example.
    """
    began = time.perf_counter()
    run = world or _world(task)
    journal = run(task.scenario)
    verdicts = judge(journal, task.scenario.promises)
    repeated, difference = None, ""
    if twice:
        again = run(task.scenario)
        repeated = again.digest()
        found = first_difference(journal, again)
        if found is not None:
            difference = f"line {found[0]} of the journal was {found[1]} and then {found[2]}"
    return RunResult(task, journal, verdicts, time.perf_counter() - began, journal.digest(), repeated, difference)


def _world(task: Task) -> World:
    if task.world == "sim":
        from sfusion.harness.worlds import sim

        return sim.run
    try:
        from sfusion.harness.worlds import ray
    except ImportError as error:
        raise MissingWorld(f"world ray needs Ray, which cannot be imported here ({error}); pip install ray") from error
    return ray.run


def run_all(
    tasks: Iterable[Task], *, jobs: int = 1, twice: bool = False, world: World | None = None
) -> Iterator[RunResult]:
    """Results in the order of the tasks, each as soon as it and those before it are there.

    With a ``world`` they run in this process, one after the other.
    """
    tasks = list(tasks)
    if world is not None:
        yield from (run_one(task, twice=twice, world=world) for task in tasks)
        return
    run: Callable[[Task], RunResult] = _Twice() if twice else run_one
    if jobs <= 1 or len(tasks) <= 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, tasks)


class _Twice:
    """run_one with twice, in a form that travels to another process."""

    def __call__(self, task: Task) -> RunResult:
        return run_one(task, twice=True)
