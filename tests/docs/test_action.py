"""The GitHub Action and the pre-commit hook: their commands are run here as GitHub and pre-commit
run them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from tests.warm import warm

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
GOOD = "scenario: good\nabout: Nothing fails.\nload: {calls: 1}\npromises: [every_call_ends_once]\n"
BROKEN = (
    "scenario: broken\nabout: It cannot hold.\nload: {calls: 1}\npromises: "
    "[{outcomes: {throttled: all}}]\n"
)


def step(name: str) -> dict[str, Any]:
    return next(each for each in ACTION["runs"]["steps"] if each["name"] == name)


def run_step(name: str, folder: Path, **inputs: str) -> tuple[int, str]:
    """Run the script of a step in ``folder``; return its exit code and what it printed."""
    given = {key: spec["default"] for key, spec in ACTION["inputs"].items()} | inputs
    variables = {
        key: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: given[found[1]], text)
        for key, text in step(name)["env"].items()
    }
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step(name)["run"]],
        cwd=folder,
        env={
            **os.environ,
            **variables,
            "PATH": f"{warm()}{os.pathsep}{os.environ['PATH']}",
            "GITHUB_ACTIONS": "true",
            "GITHUB_WORKSPACE": str(folder),
            "GITHUB_OUTPUT": str(folder / "output"),
            "GITHUB_STEP_SUMMARY": str(folder / "job-summary"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_action_runs_scenarios_and_writes_summary_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "good.yaml").write_text(GOOD)
    (tmp_path / "broken.yaml").write_text(BROKEN)
    code, text = run_step(
        "Run the scenarios",
        tmp_path,
        scenarios="mine/\nbroken.yaml",
        arguments="--jobs 1 --seed 5",
        out="my runs",
    )
    assert code == 1, text
    assert "\n::error title=broken outcomes::1 of 1 calls ended ok" in text
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert "2 runs: 1 broke a promise" in (tmp_path / "job-summary").read_text()
    assert "seed: 5" in (tmp_path / "my runs" / "good" / "scenario.yaml").read_text()
    assert {"index.html", "junit.xml", "summary.md"} < {
        path.name for path in (tmp_path / "my runs").iterdir()
    }


CLIENT = """
import aiohttp

async def run(base_url, code):
    async with aiohttp.ClientSession() as session:
        async with session.post(f"{base_url}/run_code", json={"code": code}) as answer:
            return (await answer.json())["run_result"]["stdout"]
"""


def test_the_action_judges_a_client(tmp_path: Path) -> None:
    (tmp_path / "my_client.py").write_text(CLIENT)
    target = "my_client:run -k failures"
    code, text = run_step("Run the scenarios", tmp_path, judge=target, out="runs")
    assert code == 1, text
    line = CLIENT.splitlines().index("async def run(base_url, code):") + 1
    annotation = f"\n::error file=my_client.py,line={line},title=judge my_client%3Arun "
    assert annotation + "ends_told_apart" in text
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert "ends_told_apart" in (tmp_path / "job-summary").read_text()
    written = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {"judge", "judge.html", "judge.md", "judge.xml"} <= written
    assert "index.html" not in written


def test_text_of_an_input_is_never_a_command(tmp_path: Path) -> None:
    hostile = "$(touch${IFS}taken);touch${IFS}taken2 *"
    code, _ = run_step("Run the scenarios", tmp_path, scenarios=hostile)
    assert code == 2
    assert (tmp_path / "output").read_text() == "exit-code=2\n"
    code, _ = run_step("Run the scenarios", tmp_path, judge=hostile)
    assert code == 3, "two words are a program, which is not there"
    assert not list(tmp_path.glob("taken*"))
    assert not any("${{" in each.get("run", "") for each in ACTION["runs"]["steps"])


@pytest.mark.parametrize(
    ("path", "checked"),
    [
        ("scenarios/slow.yaml", True),
        ("tests/scenarios/deep/slow.yml", True),
        ("scenarios/_base.yaml", False),
        ("my_scenarios/slow.yaml", False),
        ("config.yaml", False),
    ],
)
def test_the_hook_checks_scenario_files_only(path: str, checked: bool) -> None:
    assert bool(re.search(HOOK["files"], path) and not re.search(HOOK["exclude"], path)) is checked


def test_the_hook_fails_on_an_invalid_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("calls", "cals"))
    command, *words = HOOK["entry"].split()
    done = subprocess.run(
        [warm(command), *words, "a.yaml", "b.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("b.yaml:3: unknown key 'cals'")
