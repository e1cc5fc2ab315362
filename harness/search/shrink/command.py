"""``sfusion shrink``: reduce a broken run to the smallest scenario that breaks the same promise in
the same way.

Calls, workers, faults, events, settings and the schedule are reduced as long as the promise breaks
for the same reason and a correct tool keeps it. The result is a scenario file with comments on what
happens.

--keep saves it as a scenario of yours, with the promise that it breaks. A run that was shrunk
before, or with --seconds 0, is saved as it is.

Exit code 0 if the file was written, 2 if the run no longer breaks a promise, if the scenario to
keep exists already, or if the run names code and --trust is missing.

Example: sfusion shrink runs/throttled-gateway --keep scenarios/found/lost-permit.yaml
"""

from __future__ import annotations

import logging
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from typer import Argument

from sfusion_tools.errors import near
from sfusion_tools.tool_registry import read_entries
from sfusion_tools.wording import counted

from ...atomic_files import write_file, writing
from ...commandline.declaring import command, option
from ...commandline.options import Tools, Trust
from ...core.journal import Event
from ...errors import BadOption
from ...lab.promises import PROMISES, RunEvents, Verdict
from ...lab.runs.directory import SCENARIO, edited_line, near_runs, read_run
from ...lab.runs.runner import ERROR, RunResult, run_one
from ...lab.runs.tasks import Task, adapt_tasks, admit_tasks
from ...lab.scenarios.model import Scenario, name_problem
from ...lab.scenarios.reading import is_bundled, read_scenarios
from ...lab.worlds.replacing import diverted_logs
from ...terminal import ProgressReporter, printable
from . import STUCK, Budget, Failure, Reproduces, failures_of, with_promise
from . import shrink as search

SHRUNK = "shrunk.yaml"
"""The file that `sfusion shrink` writes into the folder of a run."""
_LINES = 14
"""How many events are told (chosen)."""
_CALLS = 3
"""Of how many calls (chosen)."""
_WIDTH = 110
"""Columns of a line of the story (chosen)."""


def read_recorded(run: Path, *, trust: bool = False) -> Task:
    """Read the folder of a run, or a scenario file with one cell, for world sim."""
    if run.is_dir():
        task, journal, _ = read_run(run)
        if journal.header.get("sandboxes"):
            raise BadOption(
                f"{run} was run against a real sandbox; this needs the fake one in world sim"
            )
        return Task(task.scenario, "sim", run / SCENARIO, trusted=trust)
    if not run.exists():
        raise BadOption(f"{run}: no such folder or file; {near_runs(run)}")
    cells = read_scenarios(run)
    if len(cells) > 1:
        raise BadOption(
            f"{run} has a matrix of {len(cells)} cells; run it with --out and give the "
            "folder of one cell"
        )
    return Task(cells[0], "sim", run, trusted=trust or is_bundled(run))


def failure_to_shrink(task: Task, promise: str | None = None) -> tuple[RunResult, Failure]:
    """Run it and return its first failure, or that of the promise; raise BadOption if there is
    none."""
    if promise is not None and promise not in (*PROMISES, ERROR, STUCK):
        raise BadOption(f"--promise {promise}: no such promise; {near(promise, PROMISES)}")
    result = run_one(task)
    found = failures_of(result)
    wanted = [failure for failure in found if promise in (None, failure.promise)]
    if not wanted:
        others = ""
        if found:
            names = dict.fromkeys(failure.promise for failure in found)
            others = f"; it breaks {', '.join(names)}"
        broken = "no promise is broken" if promise is None else f"{promise} is not broken"
        raise BadOption(
            f"{task.name}: {broken} when it is run in world sim{others}: there is nothing to shrink"
        )
    return result, wanted[0]


def shrunk_file(scenario: Scenario, failure: Failure) -> str:
    """Return the text of the file for a shrunk scenario: with its promise, and a comment of what
    happens."""
    scenario = with_promise(scenario, failure)
    result = run_one(Task(scenario, "sim", trusted=True))
    return scenario_file(
        scenario.changed(about=f"Shrunk from {scenario.title}."), tell(result, failure)
    )


def with_tools(task: Task, tools: Path | None) -> Task:
    """Return the task with the tools of a config file, if there is one, and let its classes be
    imported."""
    if tools is not None:
        (task,) = adapt_tasks([task], tools=read_entries(tools))
    admit_tasks([task], tools)
    return task


def keep(
    run: Path,
    folder: Path,
    name: str | None = None,
    *,
    tools: Path | None = None,
    trust: bool = False,
) -> Path:
    """Write a recorded run, shrunk if it was, as a scenario below a folder, and return the new
    file."""
    task = with_tools(
        read_recorded(run / SHRUNK if (run / SHRUNK).is_file() else run, trust=trust), tools
    )
    result = run_one(task)
    found = failures_of(result)
    broken = [failure.promise for failure in found if failure.promise in PROMISES]
    if not broken and run.is_dir():
        broken = _once_broken(run)
    data = task.scenario.plain
    stated = [made.name for made in task.scenario.promises]
    data["promises"] = [
        *data.get("promises", []),
        *(promise for promise in dict.fromkeys(broken) if promise not in stated),
    ]
    data["scenario"] = name or _name(task.scenario.scenario, (broken or stated)[0])
    comment: list[str] = []
    if found:
        comment = tell(result, found[0])
    elif broken:
        comment = [f"Broke {', '.join(broken)}."]
    if comment:
        data["about"] = comment[0]
    target = folder / f"{data['scenario']}.yaml"
    if target.exists():
        raise BadOption(f"{target} exists already; give another FILE with --keep")
    text = scenario_file(Scenario.from_data(data), comment)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_file(target, text)
    return target


def _once_broken(run: Path) -> list[str]:
    """Return what a recorded run broke that is mended now."""
    line = edited_line(run)
    if line:
        raise BadOption(f"{line}. It breaks nothing now, so only its verdict says what to keep")
    return [verdict.promise for verdict in read_run(run)[2] if verdict.state == "broken"]


def _name(scenario: str, promise: str) -> str:
    """Return a name made from a scenario, which may name the promise already, and a promise."""
    end = re.sub(r"[^a-z0-9.-]+", "-", f"-{promise}")
    return scenario if scenario.endswith(end) else f"{scenario}{end}"


def scenario_file(scenario: Scenario, comment: list[str]) -> str:
    """Return the text of a scenario file that begins with a comment."""
    head: list[str] = []
    for text in comment:
        is_literal = text.startswith(" ")
        head += [text] if is_literal else textwrap.wrap(text, _WIDTH)
    data = yaml.safe_dump(
        scenario.written, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=None
    )
    return "".join(f"# {line}".rstrip() + "\n" for line in head) + data


def tell(result: RunResult, failure: Failure) -> list[str]:
    """Return what happens in a failing run, in a few lines: the promise, then the events that lead
    there."""
    verdict = next(
        (
            verdict
            for verdict in result.verdicts
            if verdict.state == "broken" and verdict.how == failure.how
        ),
        None,
    )
    said = next((other for other in failures_of(result) if other == failure), failure).sentence
    told = [f"Breaks {failure.promise}: {printable(said)}."]
    lines = [f"  {event['at']:>8.4g} s  {text}" for event, text in _events(result, verdict)]
    if len(lines) > _LINES:
        lines = [*lines[: _LINES // 2], "              ...", *lines[-_LINES // 2 :]]
    if lines:
        told += ["What happens:", *lines]
    deviations = result.journal.events[-1].get("deviations") if result.journal.events else None
    if deviations:
        steps = ", ".join(str(step) for step, _ in deviations[:5]) + (
            ", ..." if len(deviations) > 5 else ""
        )
        told.append(
            f"This needs another order than first in, first out within a moment (step {steps})."
        )
    return told


def _events(result: RunResult, verdict: Verdict | None) -> list[tuple[Event, str]]:
    """Return the events of the calls in the evidence, and the disturbances, each with its text."""
    run = RunEvents(result.journal)
    if verdict is None:
        shown = []
    else:
        shown = [*_named(verdict), *(event.get("call") for event in verdict.evidence)]
    calls = (
        list(dict.fromkeys(call for call in shown if call in run.calls))[:_CALLS]
        or list(run.calls)[:1]
    )
    found = []
    for event in result.journal.events:
        template = _TOLD.get(f"{event['source']} {event['event']}", "")
        is_about_them = event.get("call") in calls or "{call}" not in template
        goes_without_saying = event.get("first") or (run.has_client and event["event"] == "arrived")
        if template and is_about_them and not goes_without_saying:
            found.append((event, printable(_sentence(template, event))))
    return found


def _named(verdict: Verdict) -> Iterator[str]:
    """Yield the texts among the parameters of a verdict: some of them are the calls that it is
    about."""
    for value in verdict.how.details.values():
        yield from (
            item
            for item in (value if isinstance(value, list) else [value])
            if isinstance(item, str)
        )


_TOLD = {
    "world called": "{worker} makes call {call}",
    "world returned": "the tool {what} for {call}: {quoted}",
    "world cancelled": "the caller of {call} gives up",
    "world lost": "call {call} is lost with its worker",
    "world killed": "{target} is killed",
    **dict.fromkeys(
        ("world worker_died", "world worker_paused", "world cut_off"), "{worker} {words}"
    ),
    **dict.fromkeys(("world limiter_died", "world limiter_started"), "{words}"),
    "world broken_off": "the run is broken off after {after:g} s",
    "world stuck": "{text}",
    "client attempt_started": "attempt {attempt} of {call} is sent",
    "client backing_off": "the client waits {seconds:g} s before it sends {call} again",
    **dict.fromkeys(
        ("client permit_granted", "client permit_released"), "{call}: {words} ({permit})"
    ),
    "server arrived": "request {attempt} of {call} arrives{where}",
    "server strike": "rule `{rule}` strikes {call}: {kind} ({phase})",
    "server answered": "the sandbox answers {call} with status {status}{again}",
    "server unanswered": "{call} gets no answer{where}",
    **dict.fromkeys(
        ("server crash", "server restart", "server wedge"), "the sandbox: {event}{where}"
    ),
    "limiter resized": "the limit becomes {rate_limit}",
}
"""What is told of which events: of those that name no call always, of the others if it is one of
the calls shown."""


def _sentence(template: str, event: Event) -> str:
    raised, outcome, scored, asked = (
        event.get(key) for key in ("raised", "outcome", "reward", "retry_after")
    )
    more = {
        "words": event["event"].removeprefix("worker_").replace("_", " "),
        "what": f"raises {raised}" if raised else f"returns {outcome or ''}".rstrip(),
        "quoted": _quoted(event),
        "where": f" at {event['sandbox']}" if "sandbox" in event else "",
        "again": f", Retry-After {asked}" if asked is not None else "",
    }
    if scored is not None:
        more["call"] = f"{event['call']}, scored {scored:g}"
    return template.format(**{**event, **more})


def _quoted(event: dict[str, Any]) -> str:
    text = " ".join(str(event.get("text") or "").split())
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


@dataclass(frozen=True)
class ShrinkOptions:
    """The options of the command."""

    run: Annotated[
        Path,
        Argument(metavar="RUN", help="Folder of a run as written by --out, or a scenario file."),
    ]
    promise: Annotated[
        str | None, option("Which broken promise; by default the first.", "NAME")
    ] = None
    tools: Tools = None
    trust: Trust = False
    seconds: Annotated[float, option("Time for the search.", min=0)] = 60.0
    cases: Annotated[int, option("Maximum number of runs.", min=1)] = 5000
    to: Annotated[Path | None, option("File to write; by default RUN/shrunk.yaml.", "FILE")] = None
    keep: Annotated[
        Path | None,
        option(
            "Keep the result as this scenario; in a folder its name is made from those of "
            "run and promise.",
            "FILE|DIR",
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
        again = str(options.file if options.to is not None or run.is_file() else run)
        typer.echo(f"keep it: sfusion shrink {shlex.quote(again)}{more} --keep scenarios/found")
        return
    if options.keep.is_file():
        raise BadOption(f"--keep {options.keep}: exists already; give another name")
    if options.keep.suffix == ".yaml" and (problem := name_problem(options.keep.stem)):
        raise BadOption(f"--keep {options.keep}: {problem}")
    if options.seconds and run.name != SHRUNK and not (run / SHRUNK).is_file():
        _search(options)
        run = run if run.is_dir() and options.to is None else options.file
    folder = options.keep
    name = None
    if options.keep.suffix == ".yaml":
        folder = options.keep.parent
        name = options.keep.stem
    file = keep(run, folder, name, tools=options.tools, trust=options.trust)
    more = _options_to_run(options.tools, needs_trust=options.trust)
    typer.echo(f"{file}\nrun it: sfusion run {shlex.quote(str(file))}{more}")


def _options_to_run(tools: Path | None, *, needs_trust: bool) -> str:
    """Return the options with which a scenario that was written is run, each after a blank."""
    if tools is not None:
        return f" --tools {shlex.quote(str(tools))}"
    return " --trust" if needs_trust else ""


def _search(options: ShrinkOptions) -> str:
    """Shrink a recorded run, write the file and print how to run it; return the options that this
    needs."""
    task = with_tools(read_recorded(options.run, trust=options.trust), options.tools)
    result, failure = failure_to_shrink(task, options.promise)
    scenario = result.task.scenario
    file = options.file
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
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
        write_file(file, shrunk_file(found.scenario, failure))
        stopped = "" if found.finished else "; the search was stopped before its end"
        shown.print(f"  to   {size(found.scenario)}, in {counted(found.cases, 'run')}{stopped}")
        shown.print(str(file))
        needs_trust = any(found.scenario.runs())
        more = _options_to_run(options.tools, needs_trust=needs_trust)
        shown.print(f"run it:  sfusion run {shlex.quote(str(file))}{more}")
    return more


def counts_of(scenario: Scenario) -> tuple[int, int, int, int]:
    """Return how many calls (or rollouts), fault rules, events and deviations a scenario has."""
    load = scenario.load
    rollouts = scenario.rollouts
    sandbox = scenario.sandbox
    calls = 0
    rules = len(sandbox.faults) + sum(len(part.faults or ()) for part in sandbox.each.values())
    if rollouts is not None:
        calls = rollouts.count
        rules += len(rollouts.faults)
    if load is not None:
        calls = load.count
    deviations = scenario.schedule.deviations or () if scenario.schedule is not None else ()
    return calls, rules, len(scenario.events), len(deviations)


def size(scenario: Scenario) -> str:
    """Return what a scenario consists of, in a line."""
    calls, rules, events, deviations = counts_of(scenario)
    parts = [counted(calls, "call" if scenario.load is not None else "rollout")]
    parts += [
        counted(len(scenario.cluster.workers), "worker"),
        counted(rules, "rule"),
        counted(events, "event"),
    ]
    if scenario.schedule is not None:
        parts.append(counted(deviations, "deviation") if deviations else "a seeded schedule")
    return ", ".join(parts)
