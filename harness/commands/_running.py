"""What ``sfusion run`` does, apart from its options."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import typer

from sfusion.harness.commands._ray import RayOptions
from sfusion.harness.commands._targets import read_targets, real_sandboxes
from sfusion.harness.errors import MissingWorld
from sfusion.harness.reports import Reports, RunReport, RunReporter, write_page
from sfusion.harness.runs import plan, run_all, write_run
from sfusion.harness.scenarios import ScenarioError, scenario_files
from sfusion.harness.targets import FakeTarget, RealSandbox
from sfusion_tools.errors import ConfigError, near

WORLDS = ("sim", "ray")


def run_command(
    paths: list[str],
    *,
    world: str | None = None,
    sandbox: Sequence[str] = (),
    keyword: str,
    seed: int | None,
    jobs: int,
    twice: bool,
    tools: Path | None,
    reports: Reports,
    ray: RayOptions | None = None,
) -> int:
    """Run, print a table, write the reports that are wanted, and give the exit code."""
    named = [one for one in read_targets(sandbox) if not isinstance(one, FakeTarget)]
    if named and len(named) < len(sandbox):
        return complain("--sandbox: fake cannot be mixed with real ones; a run has either")
    world = world or ("ray" if named else "sim")
    if world not in WORLDS:
        return complain(f"--world {world}: no such world; {near(world, WORLDS)}")
    ray = ray or RayOptions()
    if problem := ray.problem(world, twice, real=bool(named)):
        return complain(problem)
    try:
        entries = read_tools(tools) if tools is not None else None
        tasks, skipped = plan(
            scenario_files(paths),
            world=world,  # type: ignore[arg-type] # checked above
            keyword=keyword,
            seed=seed,
            tools=entries,
            real=bool(named),
        )
    except (ScenarioError, ConfigError) as error:
        return complain(str(error))
    left_out = [f"{count} cell(s) {why}" for why, count in skipped.items()]
    if not tasks:
        return complain(f"no scenario was chosen: {'; '.join(left_out) or f'-k {keyword!r} matches none'}")
    reports.check()
    runs: list[RunReport] = []
    ok = True
    try:
        instances = max(task.scenario.sandbox.instances for task in tasks)
        with (
            _sandboxes(sandbox if named else (), instances) as real,
            ray.opened(tasks, real, named) as place,
            RunReporter(sys.stdout, len(tasks)) as shown,
        ):
            for result in run_all(tasks, jobs=jobs or os.cpu_count() or 1, twice=twice, world=place):
                folder = write_run(result, reports.out) if reports.out is not None else None
                run = RunReport.of_result(result, folder)
                write_page(run)
                shown.run_ended(run)
                runs.append(run)
                ok = ok and result.ok
            shown.finish(runs, "".join(f" {sentence}." for sentence in left_out))
    except MissingWorld as error:
        complain(str(error))
        return 3
    except ConfigError as error:
        return complain(str(error))
    reports.write(runs)
    return 0 if ok else 1


def _sandboxes(texts: Sequence[str], count: int) -> AbstractContextManager[Sequence[RealSandbox]]:
    """The real sandboxes, none when the fake was asked for."""
    return real_sandboxes(texts, at_least=count) if texts else nullcontext(())


def read_tools(path: Path) -> list[dict[str, Any]]:
    """The entries of a tool config file, with its mistakes told by file."""
    from sfusion_tools.tool_registry import read_entries

    return read_entries(path)


def complain(text: str) -> int:
    """Say what is wrong with the input."""
    typer.echo(text, err=True)
    return 2
