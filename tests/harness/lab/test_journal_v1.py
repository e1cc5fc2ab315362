"""Journals of version 1 are read as those of today."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.journal import VERSION, Journal
from sfusion.harness.lab.journal_v1 import upgraded
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.studies.look import read_records

FOLDER = Path(__file__).parent / "journals"
JOURNAL, SCENARIO = FOLDER / "v1-some-of-everything.ndjson", FOLDER / "v1-some-of-everything.yaml"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a run that was written with version 1."""
    folder = tmp_path / "old" / "some-of-everything"
    folder.mkdir(parents=True)
    shutil.copy(JOURNAL, folder / "journal.ndjson")
    shutil.copy(SCENARIO, folder / "scenario.yaml")
    return folder


def test_the_file_is_of_version_1_and_today_s_run_differs_only_by_version_and_problem() -> None:
    lines = [json.loads(line) for line in JOURNAL.read_text().splitlines()]
    assert lines[0].pop("journal") == 1
    (result,) = run_scenario(SCENARIO.read_text())
    header = dict(result.journal.header)
    assert header.pop("journal") == VERSION == 2
    assert {**header, "sfusion": None} == {**lines[0], "sfusion": None}
    today = [{key: value for key, value in event.items() if key != "problem"} for event in result.journal.events]
    assert today == lines[1:]
    assert Counter(event.get("problem") for event in result.journal.events)["code is missing"] == 2


def test_it_is_read_as_a_journal_of_today() -> None:
    (result,) = run_scenario(SCENARIO.read_text())
    recorded = Journal.read(JOURNAL)
    assert recorded.events == result.journal.events
    assert recorded.header["journal"] == VERSION


def test_replay_and_compare_find_no_difference(run: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["replay", str(run)])
    assert (done.exit_code, "the same journal" in done.output) == (0, True), done.output
    new = tmp_path / "new"
    assert CliRunner().invoke(app, ["run", str(SCENARIO), "--out", str(new), "--history", "0"]).exit_code == 0
    done = CliRunner().invoke(app, ["compare", str(run), str(new / "some-of-everything")])
    assert done.exit_code == 0, done.output
    assert "every call ended as before" in done.output
    assert "line" not in done.output  # the first one that differs


def test_look_and_learn_find_the_same_calls_as_in_a_journal_of_today(tmp_path: Path) -> None:
    (result,) = run_scenario(SCENARIO.read_text())
    result.journal.write(tmp_path / "journal.ndjson")
    facts = [
        [(one.call, one.kind, one.seconds, one.problem, len(one.attempts)) for one in read_records([path])]
        for path in (JOURNAL, tmp_path / "journal.ndjson")
    ]
    assert facts[0] == facts[1]
    assert Counter(problem for *_, problem, _ in facts[0])["code is missing"] == 2
    done = CliRunner().invoke(app, ["learn", str(JOURNAL), "--no-check"])
    assert done.exit_code == 0, done.output
    assert "code is missing" in done.output


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[t] The call was refused and nothing was run: `code` is empty; call it", "code is empty"),
        ("[t] The call was refused and nothing was run: `language` 'x' is not known here; y", "language is unknown"),
        ("[t] The call was refused and nothing was run: by another tool", "by another tool"),
        ("something else", None),
        (None, None),
    ],
)
def test_what_was_wrong_is_taken_from_the_text(text: str | None, problem: str | None) -> None:
    event = {"at": 1.0, "source": "world", "event": "returned", "outcome": "bad_arguments", "text": text}
    assert upgraded(event).get("problem") == problem
    assert list(upgraded(event))[-1] == "text"
