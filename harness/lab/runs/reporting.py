"""The report of a run, made from its result."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ...reports.run_report import RunReport
from .directory import scenario_text
from .runner import RunResult


def report_of_result(result: RunResult, folder: Path | None = None) -> RunReport:
    """Return the report of a result that was written to ``folder``, if it was written."""
    scenario = result.task.scenario
    header = result.journal.header
    error = result.error
    if not error and result.difference:
        error = f"two runs with the same seed differ: {result.difference}"
    return RunReport(
        scenario.scenario,
        result.verdicts,
        cell=scenario.cell,
        about=scenario.about,
        world=result.task.world,
        sandboxes=header.get("sandboxes", ()),
        seed=scenario.seed,
        sfusion=str(header.get("sfusion", "")),
        events=result.journal.events,
        read_source=partial(scenario_text, scenario),
        wall_seconds=result.wall_seconds,
        runs_code=any(scenario.runs()),
        directory="" if folder is None else str(folder),
        error=error,
    )
