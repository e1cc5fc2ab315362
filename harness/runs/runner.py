"""Plays tasks, in this process or in several, and judges them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from sfusion.harness.journal import Journal, first_difference
from sfusion.harness.promises import judge
from sfusion.harness.runs.result import RunResult
from sfusion.harness.runs.tasks import Task
from sfusion.harness.scenarios.model import Scenario
from sfusion_tools.errors import MissingExtra

Player = Callable[[Scenario], Journal]


def play(task: Task) -> Journal:
    """Run a task in its world and return the journal."""
    if task.world == "sim":
        from sfusion.harness.worlds import sim

        return sim.run(task.scenario)
    try:
        from sfusion.harness.worlds import ray
    except ImportError as error:
        raise MissingExtra("world ray", "ray", error) from error
    return ray.run(task.scenario)


def run_one(task: Task, *, twice: bool = False, player: Player | None = None) -> RunResult:
    """Play and judge one task; with ``twice`` play it again and compare the journals byte by byte.

    ``player`` plays it instead of the task's world, for example on a cluster that is already open.
    """
    began = time.perf_counter()
    journal = player(task.scenario) if player else play(task)
    verdicts = judge(journal, task.scenario.promises)
    repeated, difference = None, ""
    if twice:
        again = player(task.scenario) if player else play(task)
        repeated = again.digest()
        found = first_difference(journal, again)
        if found is not None:
            difference = f"line {found[0]} of the journal was {found[1]} and then {found[2]}"
    return RunResult(task, journal, verdicts, time.perf_counter() - began, journal.digest(), repeated, difference)


def run_all(
    tasks: Iterable[Task], *, jobs: int = 1, twice: bool = False, player: Player | None = None
) -> Iterator[RunResult]:
    """Yield results in the order of the tasks, each as soon as it and those before it are done.

    With a ``player`` the tasks run in this process, one after the other.
    """
    tasks = list(tasks)
    run = partial(run_one, twice=twice, player=player)
    if player is not None or jobs <= 1 or len(tasks) <= 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
        yield from pool.map(run, tasks)
