"""Journals of version 1 are read as those of today."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.core.journal import VERSION, Journal
from sfusion.harness.core.journal_v1 import upgraded
from sfusion.harness.lab.runs import run_scenario
from sfusion.harness.studies.look.reading import read_records

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


ADDED = (
    "asks",
    "longest_text",
    "lease",
    "intent",
    "asked",
    "sent",
    "attempts",
    "exit",
    "pieces",
    "text",
    "chars",
)
"""What journals tell more of, or otherwise, since then."""


def test_it_is_read_as_a_journal_of_today() -> None:
    assert json.loads(JOURNAL.read_text().splitlines()[0])["journal"] == 1
    (result,) = run_scenario(SCENARIO.read_text())
    recorded = Journal.read(JOURNAL)
    today = [one for one in result.journal.events if one["event"] != "looked_inside"]
    then, now = (
        [{key: one[key] for key in one.keys() - ADDED} for one in events]
        for events in (recorded.events, today)
    )
    assert then == now
    assert recorded.header["journal"] == VERSION == 2
    assert Counter(event.get("problem") for event in recorded.events)["code is missing"] == 2


def test_compare_finds_the_same_calls(run: Path, tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert (
        CliRunner()
        .invoke(app, ["run", str(SCENARIO), "--out", str(new), "--history", "0"])
        .exit_code
        == 0
    )
    done = CliRunner().invoke(app, ["compare", str(run), str(new / "some-of-everything")])
    assert "every call ended as before" in done.output
    assert (done.exit_code, "verdict.json is missing" in done.output) == (
        1,
        True,
    )  # only the journal was kept


def test_look_and_learn_find_the_same_calls_as_in_a_journal_of_today(tmp_path: Path) -> None:
    (result,) = run_scenario(SCENARIO.read_text())
    result.journal.write(tmp_path / "journal.ndjson")
    facts = [
        [
            (one.call, one.kind, one.seconds, one.problem, len(one.attempts))
            for one in read_records([path])
        ]
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
        (
            "[t] The call was refused and nothing was run: `language` 'x' is not known here; y",
            "language is unknown",
        ),
        ("[t] The call was refused and nothing was run: by another tool", "by another tool"),
        ("something else", None),
        (None, None),
    ],
)
def test_what_was_wrong_is_taken_from_the_text(text: str | None, problem: str | None) -> None:
    event = {
        "at": 1.0,
        "source": "world",
        "event": "returned",
        "outcome": "bad_arguments",
        "text": text,
    }
    assert upgraded(event).get("problem") == problem
    assert list(upgraded(event))[-1] == "text"
