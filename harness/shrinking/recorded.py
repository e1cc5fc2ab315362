"""Recorded runs to shrink or keep: reading them, and the files that come out of it."""

from __future__ import annotations

import re
from pathlib import Path

from sfusion.harness.errors import BadOption
from sfusion.harness.promises import PROMISES
from sfusion.harness.runs.directory import read_run
from sfusion.harness.runs.result import RunResult
from sfusion.harness.runs.runner import run_one
from sfusion.harness.runs.tasks import Task
from sfusion.harness.scenarios.library import JOURNAL
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.scenarios.reading import read_scenarios
from sfusion.harness.shrinking.failure import ERROR, STUCK, Failure, failures_of
from sfusion.harness.shrinking.telling import scenario_file, tell
from sfusion_tools.errors import near

SHRUNK = "shrunk.yaml"
"""The file that `sfusion shrink` writes into the folder of a run."""


def read_recorded(run: Path) -> Task:
    """Read the folder of a run, or a scenario file with one cell, for world sim."""
    if run.is_dir():
        task, journal, _ = read_run(run)
        if journal.header.get("sandboxes"):
            raise BadOption(f"{run} was run against a real sandbox; shrinking needs the fake one in world sim")
        return Task(task.scenario, "sim", run / JOURNAL)
    cells = read_scenarios(run)
    if len(cells) > 1:
        raise BadOption(f"{run} has a matrix of {len(cells)} cells; run it with --out and give the folder of one cell")
    return Task(cells[0], "sim", run)


def failure_to_shrink(task: Task, promise: str | None = None) -> tuple[RunResult, Failure]:
    """Run it and return its first failure, or that of the promise; raise BadOption if there is none."""
    result = run_one(task)
    found = failures_of(result)
    if promise is not None and promise not in (*PROMISES, ERROR, STUCK):
        raise BadOption(f"--promise {promise}: no such promise; {near(promise, PROMISES)}")
    wanted = [one for one in found if promise in (None, one.promise)]
    if not wanted:
        others = f"; it breaks {', '.join(dict.fromkeys(one.promise for one in found))}" if found else ""
        broken = f"{promise} is not broken" if promise else "no promise is broken"
        raise BadOption(f"{task.name}: {broken} when it is run in world sim{others}: there is nothing to shrink")
    return result, wanted[0]


def shrunk_file(scenario: Scenario, failure: Failure) -> str:
    """Return the text of the file for a shrunk scenario: with its promise, and a comment of what happens."""
    named = {promise.name for promise in scenario.promises}
    if failure.promise in PROMISES and failure.promise not in named:
        scenario = scenario.changed(promises=[failure.promise])
    result = run_one(Task(scenario, "sim"))
    about = (
        f"Shrunk from {scenario.scenario}: the smallest scenario found that breaks {failure.promise} in the same way."
    )
    return scenario_file(scenario.changed(about=about), tell(result, failure))


def keep(run: Path, folder: Path, name: str | None = None) -> Path:
    """Write a recorded run, shrunk if it was, as a scenario below a folder, and return the new file."""
    file = run / SHRUNK if (run / SHRUNK).is_file() else run
    task = read_recorded(file)
    result = run_one(task)
    found = failures_of(result)
    data = task.scenario.plain
    promises = [one.promise for one in found if one.promise in PROMISES]
    missing = [one for one in dict.fromkeys(promises) if one not in {made.name for made in task.scenario.promises}]
    data["promises"] = [*data["promises"], *missing]
    data["scenario"] = name or _name(promises or [made.name for made in task.scenario.promises], task.scenario)
    if found:
        data["about"] = tell(result, found[0])[0]
    scenario = Scenario.from_data(data)
    comment = tell(result, found[0]) if found else []
    target = folder / f"{scenario.scenario}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with target.open("x", encoding="utf-8") as out:
            out.write(scenario_file(scenario, comment))
    except FileExistsError:
        raise BadOption(f"{target} exists already; give the scenario another name with --name") from None
    return target


def _name(promises: list[str], scenario: Scenario) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", f"{scenario.scenario}-{promises[0]}".lower())
