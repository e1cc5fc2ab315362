"""Recorded runs to shrink or keep: reading them, and the files that come out of it."""

from __future__ import annotations

import re
from pathlib import Path

from sfusion.harness.atomic_files import write_file
from sfusion.harness.errors import BadOption, CannotWrite
from sfusion.harness.lab.promises import PROMISES
from sfusion.harness.lab.runs.directory import SCENARIO, read_run
from sfusion.harness.lab.runs.result import RunResult
from sfusion.harness.lab.runs.runner import run_one
from sfusion.harness.lab.runs.tasks import Task, adapt_tasks
from sfusion.harness.lab.runs.tool_classes import check_classes, find_modules_beside
from sfusion.harness.lab.runs.trust import check_trusted
from sfusion.harness.lab.scenarios.library import is_bundled
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.scenarios.reading import read_scenarios
from sfusion.harness.search.shrink.failure import ERROR, STUCK, Failure, failures_of
from sfusion.harness.search.shrink.telling import scenario_file, tell
from sfusion_tools.errors import near
from sfusion_tools.tool_registry import read_entries

SHRUNK = "shrunk.yaml"
"""The file that `sfusion shrink` writes into the folder of a run."""


def read_recorded(run: Path, *, trust: bool = False) -> Task:
    """Read the folder of a run, or a scenario file with one cell, for world sim."""
    if run.is_dir():
        task, journal, _ = read_run(run)
        if journal.header.get("sandboxes"):
            raise BadOption(f"{run} was run against a real sandbox; this needs the fake one in world sim")
        return Task(task.scenario, "sim", run / SCENARIO, trusted=trust)
    cells = read_scenarios(run)
    if len(cells) > 1:
        raise BadOption(f"{run} has a matrix of {len(cells)} cells; run it with --out and give the folder of one cell")
    return Task(cells[0], "sim", run, trusted=trust or is_bundled(run))


def failure_to_shrink(task: Task, promise: str | None = None) -> tuple[RunResult, Failure]:
    """Run it and return its first failure, or that of the promise; raise BadOption if there is none."""
    if promise is not None and promise not in (*PROMISES, ERROR, STUCK):
        raise BadOption(f"--promise {promise}: no such promise; {near(promise, PROMISES)}")
    result = run_one(task)
    found = failures_of(result)
    wanted = [one for one in found if promise in (None, one.promise)]
    if not wanted:
        others = f"; it breaks {', '.join(dict.fromkeys(one.promise for one in found))}" if found else ""
        broken = "no promise is broken" if promise is None else f"{promise} is not broken"
        raise BadOption(f"{task.name}: {broken} when it is run in world sim{others}: there is nothing to shrink")
    return result, wanted[0]


def shrunk_file(scenario: Scenario, failure: Failure) -> str:
    """Return the text of the file for a shrunk scenario: with its promise, and a comment of what happens."""
    if failure.promise in PROMISES:
        named = [made for made in scenario.plain["promises"] if failure.promise in (made, *made)]
        scenario = scenario.changed(promises=named or [failure.promise])
    result = run_one(Task(scenario, "sim", trusted=True))
    return scenario_file(scenario.changed(about=f"Shrunk from {scenario.title}."), tell(result, failure))


def with_tools(task: Task, tools: Path | None) -> Task:
    """Return the task with the tools of a config file, if there is one, and let its classes be imported."""
    if tools is not None:
        (task,) = adapt_tasks([task], tools=read_entries(tools))
    check_trusted([task])
    if isinstance(task.scenario.tools, list) and (named := tools or task.file) is not None:
        find_modules_beside([named])
    check_classes([task])
    return task


def keep(run: Path, folder: Path, name: str | None = None, *, tools: Path | None = None, trust: bool = False) -> Path:
    """Write a recorded run, shrunk if it was, as a scenario below a folder, and return the new file."""
    task = with_tools(read_recorded(run / SHRUNK if (run / SHRUNK).is_file() else run, trust=trust), tools)
    result = run_one(task)
    found = failures_of(result)
    broken = [one.promise for one in found if one.promise in PROMISES]
    if not broken and run.is_dir():  # it is mended; the recording says what it was
        broken = [one.promise for one in read_run(run)[2] if one.state == "broken"]
    data, stated = task.scenario.plain, [made.name for made in task.scenario.promises]
    data["promises"] += [one for one in dict.fromkeys(broken) if one not in stated]
    data["scenario"] = name or _name(task.scenario.scenario, (broken or stated)[0])
    comment = tell(result, found[0]) if found else [f"Broke {', '.join(broken)}."] if broken else []
    data["about"] = comment[0] if comment else data["about"]
    target = folder / f"{data['scenario']}.yaml"
    if target.exists():
        raise BadOption(f"{target} exists already; give another FILE with --keep")
    text = scenario_file(Scenario.from_data(data), comment)
    make_folder(folder)
    write_file(target, text)
    return target


def _name(scenario: str, promise: str) -> str:
    """Return a name made from a scenario, which may name the promise already, and a promise."""
    end = re.sub(r"[^a-z0-9.-]+", "-", f"-{promise}")
    return scenario if scenario.endswith(end) else f"{scenario}{end}"


def make_folder(folder: Path) -> None:
    """Create a folder for a file; raise CannotWrite."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWrite(f"{folder} cannot be written: {error.strerror or error}") from error
