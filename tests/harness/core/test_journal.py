"""The journal as a file, and promises on journals that show little or nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sfusion.harness.atomic_files import lock_folder
from sfusion.harness.core.journal import Journal, first_difference
from sfusion.harness.errors import JournalError
from sfusion.harness.lab.runs import run_one
from sfusion.harness.lab.runs.directory import edited_line, read_run, write_run, written_run
from sfusion.harness.lab.runs.tasks import Task
from sfusion.harness.lab.scenarios.tools import masked, secrets_in
from sfusion.harness.lab.worlds import sim
from tests.harness.lab.promises.scenes import scene, verdicts


def small() -> Journal:
    journal = Journal.begin(scenario="small", cell="", seed=1, world="sim")
    journal.note(0.1234567, "world", "began", text="é\ud800 <b>")
    return journal


def test_a_journal_reads_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    small().write(path)
    again = Journal.read(path)
    assert again.header == small().header
    assert again.events == small().events
    assert again.digest() == small().digest()
    assert json.loads(path.read_text().splitlines()[1])["at"] == 0.123457


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not a journal"),
        ("no json\n", "not a journal"),
        ('{"at": 1}\n', "no key 'journal'"),
        ('{"journal": 99}\n', "version 99; this sfusion reads version 2: run its scenario again"),
        ('{"journal": 1}\n', "version 1; this sfusion reads version 2"),
    ],
)
def test_a_file_that_is_not_a_journal_is_refused(content: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "journal.ndjson"
    path.write_text(content)
    with pytest.raises(JournalError, match=words):
        Journal.read(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot be read"):
        Journal.read(tmp_path / "none")


def test_the_first_difference_is_found_even_if_one_journal_is_shorter() -> None:
    longer = small()
    longer.note(1.0, "world", "ended")
    assert first_difference(small(), small()) is None
    assert first_difference(small(), longer) == (
        3,
        "(the journal ends)",
        list(longer.lines())[2].strip(),
    )


def test_every_promise_is_unknown_for_an_empty_journal() -> None:
    found = verdicts(Journal.begin(scenario="x", cell="", seed=0, world="sim"), rollouts=True)
    states = {name: verdict.state for name, verdict in found.items()}
    of_other_work = [
        name
        for name, verdict in found.items()
        if verdict.how.kind in ("only_single_calls", "only_episodes")
    ]
    assert {states.pop(name) for name in of_other_work} == {"not_applicable"}
    assert set(states.values()) == {"unknown"}


def test_a_journal_truncated_anywhere_is_judged_without_an_error() -> None:
    faults = [
        {"first": 3, "what": {"status": 429, "retry_after": 1}},
        {"every": 5, "phase": "after", "what": "reset"},
    ]
    events = [
        {"at": "200ms", "kill": "n1-w1"},
        {"at": "300ms", "crash": "sandbox", "seconds": "1s"},
    ]
    whole = sim.run(scene(sandbox={"faults": faults}, events=events))
    for size in range(0, len(whole.events), 17):
        found = verdicts(Journal(whole.header, whole.events[:size]), rollouts=True)
        called = {event["call"] for event in whole.events[:size] if event["event"] == "called"}
        ended = {
            event["call"] for event in whole.events[:size] if event["event"] in ("returned", "lost")
        }
        if called - ended:
            assert found["every_call_ends_once"].state == "broken"


def test_secrets_of_a_tool_config_are_not_written_to_disk(tmp_path: Path) -> None:
    config = {
        "headers": {"Authorization": "Bearer abc123"},
        "api_key": "k-999",
        "sandbox_fusion_url": "http://user:hunter2@host/run_code",
        "more": {
            "sandbox_fusion_url": [
                "https://host/p4th/run_code",
                "http://127.0.0.1:1/run_code?key=qu3ry",
            ]
        },
        "judge_url": "https://host/judge",
        "rate_limit": 3,
    }
    assert set(secrets_in(config).values()) == {"Bearer abc123", "k-999", "user:hunter2"}
    text = json.dumps(masked(config))
    for secret in ("abc123", "k-999", "hunter2", "p4th", "qu3ry"):
        assert secret not in text
    assert "https://host/judge" in text
    assert masked(config)["rate_limit"] == 3
    task = Task(scene(tools={"rate_limit": 3, "headers": {"X-Token": "canary-1"}}), "sim")
    folder = write_run(run_one(task), tmp_path)
    for path in folder.iterdir():
        assert "canary-1" not in path.read_text()
    again, journal, _ = read_run(folder)
    assert run_one(again).digest == journal.digest()


def test_one_process_at_a_time_writes_below_a_folder(tmp_path: Path) -> None:
    result = run_one(Task(scene(), "sim", tmp_path / "x.yaml"))
    with written_run(result, tmp_path / "out") as folder:
        (folder / "report.html").write_text("the page of this run")
        with pytest.raises(BlockingIOError):
            lock_folder(tmp_path / "out", wait=False)
    lock_folder(tmp_path / "out", wait=False).close()
    assert edited_line(folder) == ""
