"""``--json FILE`` of list, check, explain, doctor and drift; ``-`` is stdout, which then holds
nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.fakes.sandbox import FakeSandbox
from sfusion.harness.cli import app
from sfusion.harness.lab.promises import PROMISES

GOOD = """\
scenario: good
about: Nothing fails.
matrix: {seed: [1, 2]}
load: {calls: 1}
promises: [every_call_ends_once]
"""


def answer(*arguments: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json", "-"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "wrong.yaml").write_text(GOOD.replace("calls", "cals"))
    return tmp_path


def test_list_answers_with_scenarios_and_problems(files: Path) -> None:
    found = answer("list", files, code=2)
    assert found["scenarios"] == [
        {
            "scenario": "good",
            "about": "Nothing fails.",
            "file": str(files / "good.yaml"),
            "worlds": ["sim"],
            "cells": ["good[seed=1]", "good[seed=2]"],
            "promises": ["every_call_ends_once"],
            "incident": [],
        }
    ]
    assert [(one["file"], one["line"]) for one in found["problems"]] == [
        (str(files / "wrong.yaml"), 4)
    ]


def test_check_answers_with_files_and_problems(files: Path) -> None:
    found = answer("check", files, code=2)
    assert found["valid"] is False
    assert found["files"] == [
        {"file": str(files / "good.yaml"), "cells": ["good[seed=1]", "good[seed=2]"]}
    ]
    (problem,) = found["problems"]
    assert (problem["file"], problem["line"]) == (str(files / "wrong.yaml"), 4)
    assert problem["text"].startswith("unknown key 'cals'")
    assert answer("check", files / "good.yaml")["valid"] is True


def test_explain_answers_with_kind_text_and_fields() -> None:
    (found,) = answer("explain", "no_starvation")["explanations"]
    assert (found["kind"], found["name"]) == ("promise", "no_starvation")
    assert found["about"].startswith("No caller waits")
    assert [*found["fields"]] == ["at_most"]
    assert [one["name"] for one in answer("explain", "promises")["explanations"]] == [*PROMISES]
    assert {one["kind"] for one in answer("explain", "outcomes")["explanations"]} == {"outcome"}
    assert answer("explain")["names"]["promises"] == [*PROMISES]
    (field,) = answer("explain", "load.calls")["explanations"]
    assert field["kind"] == "field"
    assert "outcome" in [one["kind"] for one in answer("explain", "throttled")["explanations"]]


def test_doctor_and_drift_answer_on_stdout_alone() -> None:
    assert answer("doctor", "http://your-sandbox.example.com/run_code", code=1)["exit_code"] == 1
    with FakeSandbox(executor="python") as sandbox:
        assert answer("drift", sandbox.url, "-k", "http/ping")["counts"]["breaking"] == 0


def test_a_file_leaves_the_text_on_stdout(files: Path) -> None:
    done = CliRunner().invoke(
        app, ["list", str(files / "good.yaml"), "--json", str(files / "list.json")]
    )
    assert done.stdout.startswith("good  (sim; 2 cells)")
    assert json.loads((files / "list.json").read_text())["scenarios"][0]["scenario"] == "good"


def test_h_is_help_and_completion_can_be_installed() -> None:
    for command in ([], ["run"], ["serve", "sandbox"], ["limiter", "show"]):
        short, long = (CliRunner().invoke(app, [*command, option]) for option in ("-h", "--help"))
        assert short.exit_code == 0
        assert short.output == long.output
    assert completed("sfusion", "expl") == ["explain"]


@pytest.mark.parametrize("command", ["run", "check", "train", "sweep"])
def test_names_of_bundled_scenarios_are_completed(command: str) -> None:
    names = ["outage-left-out-of-training", "outage-trained-as-zeros"]
    assert completed("sfusion", command, "outage-") == names
    assert completed("sfusion", command, "/nowhere/outage-[") == []


def test_what_can_be_explained_is_completed() -> None:
    names = ["throttled", "throttled-gateway", "throughput_at_least"]
    assert completed("sfusion", "explain", "thro") == names


def completed(*words: str) -> list[str]:
    """Return what a shell is offered after these words."""
    shell = {
        "_SFUSION_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return CliRunner().invoke(app, [], env=shell, prog_name="sfusion").output.split()
