"""What ``sfusion shrink`` does, apart from its options."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sfusion.harness.atomic_files import write_file
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.search.shrink import Budget, Reproduces, shrink
from sfusion.harness.search.shrink.recorded import (
    SHRUNK,
    failure_to_shrink,
    make_folder,
    read_recorded,
    shrunk_file,
    with_tools,
)
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted


def run_shrink(
    run: Path, *, promise: str | None, tools: Path | None, trust: bool, seconds: float, cases: int, to: Path | None
) -> None:
    """Shrink a recorded run, write the file and print how to run it."""
    task = with_tools(read_recorded(run, trust=trust), tools)
    result, failure = failure_to_shrink(task, promise)
    scenario = result.task.scenario
    with _quiet_asyncio(), ProgressReporter(sys.stdout, cases, "shrinking") as shown:
        shown.print(f"{task.name} breaks {failure}")
        shown.print(f"  from {size(scenario)}")

        def progress(done: int, smallest: Scenario) -> None:
            text = f"{done} runs, now {size(smallest)}"
            shown.progress(done, text, line=text if done % 200 == 0 else "")

        found = shrink(scenario, Reproduces(scenario, failure), Budget(cases, seconds), on_case=progress)
        file = to or (run if run.is_dir() else run.parent) / SHRUNK
        make_folder(file.parent)
        write_file(file, shrunk_file(found.scenario, failure))
        stopped = "" if found.finished else "; the search was stopped before its end"
        shown.print(f"  to   {size(found.scenario)}, in {counted(found.cases, 'run')}{stopped}")
        shown.print(str(file))
        more = f" --tools {tools}" if tools is not None else " --trust" if any(found.scenario.runs()) else ""
        shown.print(f"run it:  sfusion run {file}{more}")
        shown.print(f"keep it: sfusion keep {run if to is None and run.is_dir() else file}{more}")


@contextmanager
def _quiet_asyncio() -> Iterator[None]:
    """Thousands of runs are torn down half-way; what is left open then says nothing about the tool."""
    logger = logging.getLogger("asyncio")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def counts_of(scenario: Scenario) -> tuple[int, int, int, int]:
    """Return how many calls (or rollouts), fault rules, events and deviations a scenario has."""
    load, rollouts, sandbox = scenario.load, scenario.rollouts, scenario.sandbox
    rules = len(sandbox.faults) + sum(len(part.faults or ()) for part in sandbox.each.values())
    rules += len(rollouts.faults) if rollouts is not None else 0
    calls = load.calls if load is not None else rollouts.count if rollouts is not None else 0
    deviations = scenario.schedule.deviations or () if scenario.schedule is not None else ()
    return calls, rules, len(scenario.events), len(deviations)


def size(scenario: Scenario) -> str:
    """Return what a scenario consists of, in a line."""
    calls, rules, events, deviations = counts_of(scenario)
    parts = [counted(calls, "call" if scenario.load is not None else "rollout")]
    parts += [counted(len(scenario.cluster.workers), "worker"), counted(rules, "rule"), counted(events, "event")]
    if scenario.schedule is not None:
        parts.append(counted(deviations, "deviation") if deviations else "a seeded schedule")
    return ", ".join(parts)
