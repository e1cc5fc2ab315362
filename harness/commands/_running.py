"""What ``sfusion run`` does, apart from its options."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import typer

from harness.runs import RunResult, plan, run_all, write_run
from harness.scenarios import ScenarioError, scenario_files
from harness.worlds.errors import MissingWorld
from sfusion_tools.errors import ConfigError, near

WORLDS = ("sim", "ray")


def run_command(
    paths: list[str],
    *,
    world: str,
    keyword: str,
    seed: int | None,
    jobs: int,
    out: Path | None,
    twice: bool,
    tools: Path | None,
) -> int:
    """Run, print a table, and give the exit code."""
    if world not in WORLDS:
        return complain(f"--world {world}: no such world; {near(world, WORLDS)}")
    try:
        entries = read_tools(tools) if tools is not None else None
        tasks, skipped = plan(scenario_files(paths), world=world, keyword=keyword, seed=seed, tools=entries)  # type: ignore[arg-type] # checked above
    except (ScenarioError, ConfigError) as error:
        return complain(str(error))
    if not tasks:
        why = f"{skipped} cell(s) do not run in world {world}" if skipped else f"-k {keyword!r} matches none"
        return complain(f"no scenario was chosen: {why}")
    results: list[RunResult] = []
    try:
        for result in run_all(tasks, jobs=jobs or os.cpu_count() or 1, twice=twice):
            results.append(result)
            typer.echo(line_of(result))
            if out is not None:
                write_run(result, out)
    except MissingWorld as error:
        complain(str(error))
        return 3
    except ConfigError as error:
        return complain(str(error))
    typer.echo(summary_of(results, skipped, world))
    return 0 if all(result.ok for result in results) else 1


def read_tools(path: Path) -> list[dict[str, Any]]:
    """The entries of a tool config file, with its mistakes told by file."""
    from sfusion_tools.tool_registry import read_entries

    return read_entries(path)


def complain(text: str) -> int:
    """Say what is wrong with the input."""
    typer.echo(text, err=True)
    return 2


def line_of(result: RunResult) -> str:
    """One run in a line, and a line for each promise that did not hold."""
    held = sum(verdict.held for verdict in result.verdicts)
    lines = [f"{result.state:<8} {result.task.name}  {held}/{len(result.verdicts)} promises"]
    if result.repeated is not None:
        lines[0] += "  same journal twice" if not result.difference else "  TWO RUNS DIFFER"
    lines += [
        f"         {verdict.state}: {verdict.promise}: {verdict.sentence}"
        for verdict in result.verdicts
        if not verdict.held
    ]
    if result.difference:
        lines.append(f"         {result.difference}")
    return "\n".join(lines)


def summary_of(results: list[RunResult], skipped: int, world: str) -> str:
    """The last line."""
    counts = {state: sum(result.state == state for result in results) for state in ("held", "broken", "unknown")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    more = f"; {skipped} cell(s) do not run in world {world}" if skipped else ""
    return f"{len(results)} runs: {told}{more}"
