"""A run on disk: scenario.yaml, journal.ndjson and verdict.json, enough to replay it anywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from sfusion.harness.errors import ScenarioError
from sfusion.harness.journal import Journal
from sfusion.harness.promises import Verdict
from sfusion.harness.runs.result import RunResult
from sfusion.harness.runs.tasks import Task
from sfusion.harness.scenarios.library import JOURNAL
from sfusion.harness.scenarios.model import Scenario
from sfusion.harness.scenarios.reading import parse_scenarios

SCENARIO, VERDICT = "scenario.yaml", "verdict.json"


def write_run(result: RunResult, out: Path) -> Path:
    """Write one run below ``out`` and return its folder."""
    folder = out / result.task.folder
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SCENARIO).write_text(scenario_text(result.task.scenario), encoding="utf-8")
    result.journal.write(folder / JOURNAL)
    (folder / VERDICT).write_text(json.dumps(verdict_data(result), indent=2) + "\n", encoding="utf-8")
    return folder


def verdict_data(result: RunResult) -> dict[str, Any]:
    """Return the content of verdict.json."""
    scenario = result.task.scenario
    return {
        "scenario": scenario.scenario,
        "cell": scenario.cell,
        "seed": scenario.seed,
        "world": result.task.world,
        "state": result.state,
        "journal_digest": result.digest,
        "events": len(result.journal.events),
        "wall_seconds": round(result.wall_seconds, 3),
        "error": result.error,
        "difference": result.difference,
        "verdicts": [verdict.as_dict() for verdict in result.verdicts],
    }


def scenario_text(scenario: Scenario) -> str:
    """Return the cell as a scenario file of its own, without matrix and extends."""
    head = f"# cell: {scenario.cell}\n" if scenario.cell else ""
    return head + yaml.safe_dump(scenario.written, sort_keys=False, allow_unicode=True, width=120)


def read_run(folder: Path) -> tuple[Task, Journal, list[Verdict]]:
    """Read a run back; raise ScenarioError if a file is missing."""
    for name in (SCENARIO, JOURNAL):
        if not (folder / name).is_file():
            raise ScenarioError(
                [f"{folder}: not a run: {name} is missing; give the folder of one scenario below --out"]
            )
    journal = Journal.read(folder / JOURNAL)
    text = (folder / SCENARIO).read_text(encoding="utf-8")
    scenario = parse_scenarios(text, file=str(folder / SCENARIO))[0]
    scenario = Scenario.from_data(scenario.written, journal.header.get("cell", ""))
    verdicts: list[Verdict] = []
    if (folder / VERDICT).is_file():
        data = json.loads((folder / VERDICT).read_text(encoding="utf-8"))
        verdicts = [Verdict.from_dict(one) for one in data["verdicts"]]
    return Task(scenario, journal.header["world"]), journal, verdicts
