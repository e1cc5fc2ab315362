"""``sfusion hunt``: look for a case that breaks a promise.

Draws scenarios from a seed (cluster, load, programs, rollouts, faults in every phase, kills,
pauses, lost messages, resizes, cancellations, schedules), plays them in virtual time and judges
each by every promise that applies. A run that raises, hangs or logs an error counts as broken too.
Each case leaves some features out; cases that showed new behaviour are varied further.

The same seed plays the same cases, however many processes or nodes play them.

Exit code 0 if nothing was found, 1 if something was, 2 if the input is wrong, 3 if Ray is missing.

Example: sfusion hunt --tools my-tools.yaml --near throttled-gateway --minutes 10 --out found
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO

import yaml
from markupsafe import Markup

from sfusion_tools.outcome import Outcome
from sfusion_tools.wording import counted

from ....fakes.faults import KINDS
from ....fakes.faults.action import PHASES
from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.options import (
    AddressAttribute,
    AddressVariable,
    Html,
    Jobs,
    On,
    Out,
    RayAddress,
    Seed,
    Tools,
    Trust,
)
from ...errors import BadOption
from ...lab.promises import PROMISES
from ...lab.runs import Task, read_tasks, written_run
from ...lab.runs.reporting import report_of_result
from ...lab.runs.tasks import adapt_tasks, admit_tasks, check_trusted, read_tools
from ...lab.scenarios import scenario_files
from ...lab.scenarios.tools import is_own
from ...lab.spreading import open_workers
from ...reports import Reports, write_page
from ...reports.html import render_page
from ...reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from ...terminal import ProgressReporter
from ..shrink import Budget, Reproduces, shrink, with_promise
from .case import HANG, LOGGED, HuntCase, play_case, run_bounded, scenario_of
from .corpus import Corpus
from .generate import valid
from .hunt import BATCH, Found, Hunt, Tally

_STATES = ("held", "broken", "unknown", "not_applicable")
_EVENTS = (
    "worker_died",
    "worker_paused",
    "cut_off",
    "limiter_died",
    "limiter_started",
    "cancelled",
    "lost",
    "rollout_ended",
    "rollout_lost",
    "broken_off",
)
_POINTS = 50
"""Points of the chart of behaviours (chosen: more would touch each other)."""
_EVERY = 10.0
"""Seconds between two lines of a build log (chosen)."""


def _never_seen(tally: Tally) -> Iterator[str]:
    """Yield the faults, outcomes and events that no case showed."""
    for kind, cls in sorted(KINDS.items()):
        for phase in cls.phases:
            if not tally.strikes[f"{kind} {phase}"]:
                yield f"fault {kind} in phase {phase}"
    for outcome in Outcome:
        if not tally.outcomes[outcome.value]:
            yield f"outcome {outcome.value}"
    for name in _EVENTS:
        if not tally.events[name]:
            yield f"event {name}"


def render_hunt(hunt: Hunt, tools: list[dict[str, Any]] | None, seed: int) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    tally = hunt.tally
    found = sorted(
        hunt.found.values(),
        key=lambda found_failure: (-found_failure.count, str(found_failure.finding)),
    )
    struck = {
        kind: {phase: tally.strikes[f"{kind} {phase}"] for phase in PHASES}
        for kind in sorted(KINDS)
    }
    promises = [
        (name, [tally.states[f"{name} {state}"] for state in _STATES]) for name in sorted(PROMISES)
    ]
    never = list(_never_seen(tally))
    never += [f"a verdict held on {name}" for name, counts in promises if not counts[0]]
    findings = counted(len(found), "finding") if found else "Nothing found"
    return render_page(
        "hunt.html.j2",
        headline=f"{findings} in {counted(tally.cases, 'case')}",
        tool=tools[0].get("class_name", "") if tools else "SandboxFusionTool",
        facts=[
            ("cases", f"{tally.cases:,}"),
            ("behaviours", f"{len(hunt.covered):,}"),
            ("corpus", f"{len(hunt.corpus):,}"),
            ("findings", str(len(found))),
            ("seed", str(seed)),
        ],
        found=[(found_failure, _yaml(found_failure, tools)) for found_failure in found],
        struck=struck,
        possible={kind: cls.phases for kind, cls in KINDS.items()},
        phases=PHASES,
        promises=promises,
        states=_STATES,
        outcomes=[(outcome.value, tally.outcomes[outcome.value]) for outcome in Outcome],
        never=never,
        chart=Markup(_growth(tally.growth).svg()),
        chart_style=Markup(chart_style()),
    )


def _yaml(found: Found, tools: list[dict[str, Any]] | None) -> str:
    return yaml.safe_dump(
        scenario_of(found.case, tools).written, sort_keys=False, allow_unicode=True, width=110
    )


def _growth(growth: Sequence[tuple[int, int]]) -> LineChart:
    points = [(0, 0), *growth[:: max(1, len(growth) // _POINTS)], *growth[-1:]]
    line = ChartLine(
        "",
        [
            ChartPoint(covered, note=f"{covered:,} after {cases:,} cases")
            for cases, covered in points
        ],
    )
    cases = [cases for cases, _ in points]
    return LineChart(
        title="Behaviours that were seen",
        x_name="cases played",
        labels=[f"{case:,}" for case in cases],
        lines=[line],
        numbers=cases,
    )


class HuntReporter(ProgressReporter):
    """Shows cases per second, new behaviour and what broke."""

    def __init__(self, out: TextIO, total: int, what: str) -> None:
        super().__init__(out, total, f"hunting ({what})")
        self._began = time.monotonic()
        self._last = float("-inf")
        self._behaviours = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def batch_ended(self, hunt: Hunt, played: int, done: int) -> None:
        """Show the state after a batch; ``played`` cases were played by this command, ``done`` is
        its progress."""
        new = len(hunt.covered) - self._behaviours
        rate = played / max(self.seconds, 1e-9)
        findings = counted(len(hunt.found), "finding")
        note = f"{rate:.1f} cases/s  {len(hunt.covered):,} behaviours (+{new})  {findings}"
        line = ""
        if self.seconds - self._last >= _EVERY:
            self._last = self.seconds
            line = f"{hunt.tally.cases:>6} cases  {note}"
        self.progress(done, note, line=line)
        self._behaviours = len(hunt.covered)

    def found(self, found: Found) -> None:
        """Show a finding as soon as it is made."""
        self.print(f"found in case {found.case.number}: {found.finding}", "bold red")


Entries = list[dict[str, Any]]
SHRINKING = Budget(cases=600, seconds=None)
"""By cases, not by time: the same hunt writes the same runs."""


@dataclass(frozen=True)
class HuntOptions:
    """The options of the command."""

    minutes: Annotated[float | None, option("Hunt for this long (default: 1 minute).", min=0.0)] = (
        None
    )
    cases: Annotated[int | None, option("Hunt for this many cases instead.", min=1)] = None
    seed: Seed = 0
    tools: Tools = None
    env: AddressVariable = None
    attribute: AddressAttribute = None
    near: Annotated[
        list[str] | None, option("Start from a file or bundled scenario. Repeatable.", "SCENARIO")
    ] = None
    trust: Trust = False
    corpus: Annotated[
        Path | None,
        option("Keep what was learned in this folder, and continue the hunt that it holds.", "DIR"),
    ] = None
    stop: Annotated[bool, option("Stop after the batch of the first finding.")] = False
    shrink: Annotated[bool, option("Shrink what is written with --out.")] = True
    jobs: Jobs = 0
    on: On = "here"
    ray_address: RayAddress = None
    out: Out = None
    html: Html = None


@command
def hunt(options: HuntOptions) -> int:
    if options.minutes is not None and options.cases is not None:
        raise BadOption("--minutes and --cases: give one of them")
    tools = _read_tools(options)
    hunt = Hunt(
        options.seed, keys=config_keys(tools), near=_starts(options.near or (), options.trust)
    )
    named = json.dumps(tools, sort_keys=True)
    with Corpus(options.corpus, named) if options.corpus is not None else nullcontext() as corpus:
        return _hunt_down(hunt, corpus, tools, options)


def _hunt_down(
    hunt: Hunt, corpus: Corpus | None, tools: Entries | None, options: HuntOptions
) -> int:
    before = corpus.resume(hunt) if corpus is not None else 0
    Reports(out=options.out, html=options.html).check()
    seconds = 60.0 * (1.0 if options.minutes is None else options.minutes)
    total = options.cases or max(1, round(seconds))
    fresh: list[Found] = []
    with (
        open_workers(options.jobs, options.on, options.ray_address) as workers,
        HuntReporter(sys.stdout, total, "cases" if options.cases else "seconds") as shown,
    ):
        if before:
            shown.print(f"continuing after {counted(before, 'case')} of {options.corpus}")
        played = 0
        while played < total if options.cases else shown.seconds < seconds:
            batch = hunt.decide(min(BATCH, total - played) if options.cases else BATCH)
            results = list(
                zip(batch, workers.map(partial(play_case, tools=tools), batch), strict=True)
            )
            played += len(batch)
            found = hunt.fold(results)
            if corpus is not None:
                corpus.add(hunt, results)
            for found_failure in found:
                shown.found(found_failure)
            fresh += found
            done = played if options.cases else round(shown.seconds)
            shown.batch_ended(hunt, played, done)
            if found and options.stop:
                break
        rate = played / max(shown.seconds, 1e-9)
        out = options.out
        if out is None:
            runs = []
        else:
            runs = [
                _write_run(fresh_failure, tools, out, smaller=options.shrink)
                for fresh_failure in fresh
            ]
        _print_end(shown=shown, hunt=hunt, runs=runs, played=played, rate=rate, options=options)
    if options.html is not None:
        write_file(options.html, render_hunt(hunt, tools, options.seed))
    return 1 if hunt.found else 0


def config_keys(tools: Entries | None) -> frozenset[str] | None:
    """Return the config keys that cases may set; None for our own tool, which has all of them."""
    return None if tools is None or is_own(tools[0]) else frozenset(tools[0].get("config") or {})


def _read_tools(options: HuntOptions) -> Entries | None:
    tools, not_sim = read_tools(options.tools, env=options.env, attribute=options.attribute)
    if not_sim:
        raise BadOption(
            f"--tools {options.tools}: hunts play in virtual time, which cannot play it: {not_sim}"
        )
    if tools is not None:
        first = read_tasks(scenario_files(["single-node"]), "sim")[:1]
        admit_tasks(adapt_tasks(first, tools=tools), options.tools)
    return tools


def _starts(names: Sequence[str], trust: bool) -> list[HuntCase]:
    """Return the cells of these scenarios as the first cases."""
    if not names:
        return []
    found = read_tasks(scenario_files(list(names)), "sim", trust=trust)
    check_trusted(found)
    tasks = [task for task in found if "sim" in task.scenario.worlds]
    starts: list[HuntCase] = []
    for task in tasks:
        kept = ("scenario", "about", "incident", "expected", "worlds", "promises", "time_scale")
        data = {key: value for key, value in task.scenario.written.items() if key not in kept}
        if (
            not any(task.scenario.runs())
            and isinstance(data.get("tools", {}), dict)
            and valid(data)
        ):
            starts.append(
                HuntCase(
                    len(starts), data, "near", tuple(task.scenario.written.get("promises", ()))
                )
            )
    if not starts:
        raise BadOption(
            "--near: these scenarios cannot be varied: they run only in world ray, run "
            "code, or name their own tools"
        )
    return starts


def _write_run(found: Found, tools: Entries | None, out: Path, *, smaller: bool) -> Path:
    """Write the run of the first case that showed a finding, shrunk if it is to be ``smaller``."""
    failure = found.finding
    scenario = scenario_of(found.case, tools)
    # A case may show several findings, and each is shrunk to a run of its own.
    name = f"{scenario.scenario}-{failure.promise.replace('_', '-')}"
    scenario = with_promise(scenario, failure).changed(scenario=name)
    if smaller and failure.promise != LOGGED and failure != HANG:  # a hang takes a minute each time
        same = Reproduces(scenario, failure, run=run_bounded)
        if same(scenario):
            scenario = shrink(scenario, same, SHRINKING).scenario
    result = run_bounded(Task(scenario, "sim", tools_given=tools is not None))
    with written_run(result, out) as folder:
        write_page(report_of_result(result, folder))
    return folder


def _print_end(
    shown: HuntReporter,
    hunt: Hunt,
    runs: list[Path],
    played: int,
    rate: float,
    options: HuntOptions,
) -> None:
    shown.print()
    rows = [
        (str(found.count), found.finding.promise, found.finding.sentence, str(found.case.number))
        for found in sorted(hunt.found.values(), key=lambda found: -found.count)
    ]
    if rows:
        shown.table(rows, ("cases", "broken", "how", "first"), ["bold red"] * len(rows), texts=3)
        shown.print()
        for folder in dict.fromkeys(runs):
            shown.print(f"sfusion replay {shlex.quote(str(folder))}", "dim")
    what = f"{counted(len(hunt.found), 'finding')}" if hunt.found else "nothing found"
    shown.print(
        f"{what} in {counted(hunt.tally.cases, 'case')} ({played} now, {rate:.1f} per second), "
        f"{len(hunt.covered):,} behaviours, seed {options.seed}",
        "bold red" if hunt.found else "green",
    )
