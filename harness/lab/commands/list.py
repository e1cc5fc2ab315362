"""``sfusion list``: list scenarios with their worlds, their number of cells and what they are
about.

Example: sfusion list --incidents
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ...commandline.declaring import command, option
from ...commandline.json_answer import is_stdout, problem_as_dict, write_json
from ...commandline.options import Json, Paths
from ..scenarios import Scenario, ScenarioError, read_files, scenario_files
from ..scenarios.reading import bundled_folder


@command
def list_scenarios(
    paths: Paths = None,
    incidents: Annotated[
        bool, option("List only scenarios that reproduce a report, with the report.")
    ] = False,
    names_only: Annotated[bool, option("Print only names, one per line.", names="--names")] = False,
    json_file: Json = None,
) -> None:
    found, problems = read_files(scenario_files(paths or [str(bundled_folder())]))
    listed = {file: cells for file, cells in found.items() if cells[0].incident or not incidents}
    document = {
        "scenarios": [_as_dict(file, cells) for file, cells in listed.items()],
        "problems": [problem_as_dict(problem) for problem in problems],
    }
    write_json(json_file, document)
    if not is_stdout(json_file):
        _print(list(listed.values()), incidents=incidents, names_only=names_only)
    if problems:
        raise ScenarioError(problems)


def _as_dict(file: Path, cells: list[Scenario]) -> dict[str, Any]:
    first = cells[0]
    return {
        "scenario": first.scenario,
        "about": " ".join(first.about.split()),
        "file": str(file),
        "worlds": first.worlds,
        "cells": [cell.title for cell in cells],
        "promises": [promise.name for promise in first.promises],
        "incident": list(first.incident),
    }


def _print(listed: list[list[Scenario]], *, incidents: bool, names_only: bool) -> None:
    if incidents and not names_only:
        _print_incidents([cells[0] for cells in listed])
        return
    for first, *others in listed:
        if names_only:
            typer.echo(first.scenario)
            continue
        size = f"{len(others) + 1} cells" if others else "1 cell"
        typer.echo(f"{first.scenario}  ({', '.join(first.worlds)}; {size})")
        typer.echo(f"    {' '.join(first.about.split())}")
        if first.incident:
            typer.echo(f"    reported in {', '.join(first.incident)}")


def _print_incidents(scenarios: list[Scenario]) -> None:
    """Print one line per scenario: id, report (and how many more), about."""
    rows = [("id", "incident", "about")]
    for scenario in scenarios:
        first, *more = scenario.incident
        report = f"{first} +{len(more)}" if more else first
        rows.append((scenario.scenario, report, " ".join(scenario.about.split())))

    name_width = max(len(name) for name, _, _ in rows)
    report_width = max(len(report) for _, report, _ in rows)
    for name, report, about in rows:
        typer.echo(f"{name:<{name_width}}  {report:<{report_width}}  {about}")
