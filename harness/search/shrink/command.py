"""``sfusion shrink``: reduce a broken run to the smallest scenario that breaks the same promise in the same way.

Calls, workers, faults, events, settings and the schedule are reduced as long as the promise breaks for the same reason
and a correct tool keeps it. The result is a scenario file with comments on what happens.

--keep saves it as a scenario of yours, with the promise that it breaks. A run that was shrunk before, or with
--seconds 0, is saved as it is.

Exit code 0 if the file was written, 2 if the run no longer breaks a promise, if the scenario to keep exists already, or
if the run names code and --trust is missing.

Example: sfusion shrink runs/throttled-gateway --keep scenarios/found/lost-permit.yaml
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.options import Tools, Trust
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.scenarios.model import Scenario
from sfusion.harness.lab.worlds.replacing import diverted_logs
from sfusion.harness.search.shrink import Budget, Reproduces
from sfusion.harness.search.shrink import shrink as search
from sfusion.harness.search.shrink.recorded import (
    SHRUNK,
    failure_to_shrink,
    keep,
    make_folder,
    read_recorded,
    shrunk_file,
    with_tools,
)
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted


@dataclass(frozen=True)
class ShrinkOptions:
    """The options of the command."""

    run: Annotated[Path, Argument(metavar="RUN", help="Folder of a run as written by --out, or a scenario file.")]
    promise: Annotated[str | None, option("Which broken promise; by default the first.", "NAME")] = None
    tools: Tools = None
    trust: Trust = False
    seconds: Annotated[float, option("Time for the search.", min=0)] = 60.0
    cases: Annotated[int, option("Maximum number of runs.", min=1)] = 5000
    to: Annotated[Path | None, option("File to write; by default RUN/shrunk.yaml.", "FILE")] = None
    keep: Annotated[
        Path | None,
        option(
            "Keep the result as this scenario; in a folder its name is made from those of run and promise.", "FILE|DIR"
        ),
    ] = None

    @property
    def file(self) -> Path:
        """Return the file to write."""
        return self.to or (self.run if self.run.is_dir() else self.run.parent) / SHRUNK


@command
def shrink(options: ShrinkOptions) -> None:
    run = options.run
    if options.keep is None:
        more = _search(options)
        again = options.file if options.to is not None or run.is_file() else run
        typer.echo(f"keep it: sfusion shrink {again}{more} --keep scenarios/found")
        return
    if options.keep.is_file():
        raise BadOption(f"--keep {options.keep}: exists already; give another name")
    if options.seconds and run.name != SHRUNK and not (run / SHRUNK).is_file():
        _search(options)
        run = run if run.is_dir() and options.to is None else options.file
    folder, name = (options.keep, None) if options.keep.suffix != ".yaml" else (options.keep.parent, options.keep.stem)
    file = keep(run, folder, name, tools=options.tools, trust=options.trust)
    more = f" --tools {options.tools}" if options.tools is not None else " --trust" if options.trust else ""
    typer.echo(f"{file}\nrun it: sfusion run {file}{more}")


def _search(options: ShrinkOptions) -> str:
    """Shrink a recorded run, write the file and print how to run it; return the options that this needs."""
    task = with_tools(read_recorded(options.run, trust=options.trust), options.tools)
    result, failure = failure_to_shrink(task, options.promise)
    scenario, file = result.task.scenario, options.file
    # Thousands of runs are torn down half-way; what is left open then says nothing about the tool.
    quiet = diverted_logs(logging.NullHandler(), "asyncio")
    with quiet, ProgressReporter(sys.stdout, options.cases, "shrinking") as shown:
        shown.print(f"{task.name} breaks {failure}")
        shown.print(f"  from {size(scenario)}")

        def progress(done: int, smallest: Scenario) -> None:
            text = f"{done} runs, now {size(smallest)}"
            shown.progress(done, text, line=text if done % 200 == 0 else "")

        budget = Budget(options.cases, options.seconds)
        found = search(scenario, Reproduces(scenario, failure), budget, on_case=progress)
        make_folder(file.parent)
        write_file(file, shrunk_file(found.scenario, failure))
        stopped = "" if found.finished else "; the search was stopped before its end"
        shown.print(f"  to   {size(found.scenario)}, in {counted(found.cases, 'run')}{stopped}")
        shown.print(str(file))
        trusted = any(found.scenario.runs())
        more = f" --tools {options.tools}" if options.tools is not None else " --trust" if trusted else ""
        shown.print(f"run it:  sfusion run {file}{more}")
    return more


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
