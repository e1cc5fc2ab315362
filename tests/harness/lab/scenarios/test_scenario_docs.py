"""docs/scenarios.md and docs/journal.md match the code: tables, the example, and every event."""

from __future__ import annotations

import re
from pathlib import Path

from sfusion.harness.lab.runs import run_one
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios import parse_scenarios, scenario_files
from sfusion.harness.lab.worlds import sim
from tests import ROOT
from tests.docs.tables import tables, updated
from tests.harness.lab.runs.test_determinism import STORMY

DOCS = ROOT / "docs"
SCENARIOS = (DOCS / "scenarios.md").read_text()
JOURNAL = (DOCS / "journal.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_table_of_promises_matches_the_code() -> None:
    assert tables()["Promises"] in SCENARIOS, (
        "update it: python -m tests.docs.tables docs/scenarios.md"
    )
    assert updated(SCENARIOS) == SCENARIOS


def test_the_example_runs_and_its_promises_hold(tmp_path: Path) -> None:
    (cell,) = parse_scenarios(blocks(SCENARIOS, "yaml")[0])
    result = run_one(Task(cell, "sim"))
    assert [verdict for verdict in result.verdicts if not verdict.held] == []


def test_every_event_of_a_stormy_run_is_described_with_its_keys() -> None:
    rows = [
        row.split("|")[1:4] for row in JOURNAL.splitlines() if row.startswith("| ") and "`" in row
    ]
    described: dict[tuple[str, str], str] = {}
    for source, events, keys in rows:
        for event in re.findall(r"`([^`]+)`", events):
            described[source.strip(), event] = keys
    everywhere = {"at", "source", "event", "call", "attempt", "worker"}
    for text in (STORMY, (scenario_files(["over-sampling"])[0]).read_text()):
        for event in sim.run(parse_scenarios(text)[0]).events:
            keys = described[event["source"], event["event"]]
            for key in set(event) - everywhere:
                assert f"`{key}`" in keys, (event, key)
