"""What ``sfusion run`` does, apart from its options: read, select, adapt, play, judge, report."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from sfusion.harness.commandline.exits import say
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.commands._ray import RayOptions
from sfusion.harness.lab.runs import RunResult, adapt_tasks, read_tasks, run_all, select_tasks
from sfusion.harness.lab.runs.tasks import check_classes, check_trusted, find_modules_beside, fitting_tasks
from sfusion.harness.lab.scenarios import scenario_files
from sfusion.harness.lab.scenarios.model import World
from sfusion.harness.lab.scenarios.schedule import read_schedule
from sfusion.harness.lab.spreading import open_workers
from sfusion.harness.real.targets import FakeTarget, RealSandbox
from sfusion.harness.real.targets._targets import read_targets, real_sandboxes
from sfusion.harness.reports import Reports, RunReport, RunReporter, write_page
from sfusion.harness.studies.history.record import current_commit
from sfusion.harness.studies.history.store import DEFAULT_LIMIT, written_with_history
from sfusion_tools.errors import near
from sfusion_tools.wording import counted

WORLDS: tuple[World, ...] = ("sim", "ray")


def run_command(
    paths: list[str],
    *,
    world: str | None,
    sandbox: Sequence[str],
    keyword: str,
    seed: int | None,
    schedule: str | None,
    jobs: int,
    on: str,
    address: str | None,
    twice: bool,
    tools: Path | None,
    trust: bool,
    reports: Reports,
    ray: RayOptions,
    history: int = DEFAULT_LIMIT,
) -> int:
    """Run scenarios, print a table, write the reports and return the exit code."""
    targets = [one for one in read_targets(sandbox) if not isinstance(one, FakeTarget)]
    if targets and len(targets) < len(sandbox):
        raise BadOption("--sandbox: fake cannot be combined with real sandboxes")
    chosen_world = _world(world or ("ray" if targets else "sim"))
    ray.check(chosen_world, twice, real=bool(targets))
    if chosen_world == "ray" and (on != "here" or address is not None):
        raise BadOption("--on and --address spread runs in world sim; with --world ray use --ray-address")

    tasks = read_tasks(scenario_files(paths), chosen_world, trust=trust)
    tasks, skipped = select_tasks(tasks, keyword=keyword, real=bool(targets))
    given = _read_tools(tools) if tools is not None else None
    if given is not None:
        tasks, unfit = fitting_tasks(tasks, given)
        skipped += unfit
    tasks = adapt_tasks(tasks, seed=seed, tools=given, schedule=_schedule(schedule, chosen_world))
    check_trusted(tasks)
    # Only these: any module in the folder of a stranger's file could stand in for an optional package of ours.
    named = [task.file for task in tasks if task.file is not None and isinstance(task.scenario.tools, list)]
    find_modules_beside([tools] if tools is not None else named)
    check_classes(tasks)
    notes = [f"{counted(count, 'cell')} skipped ({why})" for why, count in skipped.items()]
    if not tasks:
        raise BadOption(f"no scenario to run: {'; '.join(notes) or f'-k {keyword!r} matches none'}")
    reports.check()

    commit = current_commit() if reports.out is not None and history else ""
    runs: list[RunReport] = []
    codes: set[int] = set()
    instances = max(task.scenario.sandbox.instances for task in tasks)
    with (
        _sandboxes(sandbox if targets else (), instances) as real,
        ray.opened(tasks, real, targets) as player,
        open_workers(min(jobs or os.cpu_count() or 1, len(tasks)), on, address) as workers,
        RunReporter(sys.stdout, len(tasks)) as shown,
    ):
        try:
            for result in run_all(tasks, twice=twice, player=player, workers=workers):
                with _written(result, reports.out, history, commit) as folder:
                    run = RunReport.of_result(result, folder)
                    write_page(run)
                shown.run_ended(run)
                runs.append(run)
                codes.add(result.exit_code)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_kept(len(runs), len(tasks), reports)) from None
        shown.finish(runs, "".join(f" {sentence}." for sentence in notes))
    reports.write(runs)
    return 1 if 1 in codes else max(codes)


def _written(
    result: RunResult, out: Path | None, history: int, commit: str
) -> AbstractContextManager[Path] | AbstractContextManager[None]:
    if out is None:
        return nullcontext()
    return written_with_history(result, out, limit=history, now=datetime.now(UTC), commit=commit, on_damage=say)


def _kept(done: int, wanted: int, reports: Reports) -> str:
    """Say what an interruption left."""
    text = f"{done} of {counted(wanted, 'run')} ended"
    if reports.out is not None:
        text += f", and what they wrote is in {reports.out}"
    return f"{text}; {files} not written" if (files := reports.wanted()) else text


def _sandboxes(texts: Sequence[str], count: int) -> AbstractContextManager[Sequence[RealSandbox]]:
    return real_sandboxes(texts, at_least=count) if texts else nullcontext(())


def _world(name: str) -> World:
    for world in WORLDS:
        if world == name:
            return world
    raise BadOption(f"--world {name}: no such world; {near(name, WORLDS)}")


def _schedule(text: str | None, world: World) -> dict[str, int] | None:
    if text is not None and world != "sim":
        raise BadOption(f"--schedule needs --world sim: in world {world} the machines decide the order")
    return None if text is None else read_schedule(text)


def _read_tools(path: Path) -> list[dict[str, object]]:
    from sfusion_tools.tool_registry import read_entries

    return read_entries(path)
