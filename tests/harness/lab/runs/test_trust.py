"""A stranger's scenario or artifact runs no code and imports no class unless the user says
--trust."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.errors import Untrusted
from sfusion.harness.lab.runs import Task, run_one, run_scenario
from sfusion.harness.lab.scenarios import parse_scenarios

HEAD = "scenario: strange\nabout: From a stranger.\n"
TAIL = "load: {calls: 1, program: {code: \"open('%s', 'w')\"}}\npromises: [every_call_ends_once]\n"
TOOL = """\
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
from tests.reference_tool import GoodTool as Evil
"""
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"code": {"type": "string"}},
    "required": ["code"],
}
CONFIG = {"sandbox_fusion_url": ["http://sandbox.invalid"], "rate_limit": 4, "default_timeout": 30}


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.fixture(autouse=True)
def _same_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "strangers_tool", raising=False)


@pytest.fixture
def runs_code(tmp_path: Path) -> Path:
    file = tmp_path / "strange.yaml"
    file.write_text(HEAD + "seed: 1\nsandbox: {executor: python}\n" + TAIL % (tmp_path / "ran"))
    return file


@pytest.fixture
def names_a_class(tmp_path: Path) -> Path:
    (tmp_path / "strangers_tool.py").write_text(TOOL)
    tools = [{"class_name": "strangers_tool.Evil", "config": CONFIG}]
    file = tmp_path / "strange.yaml"
    file.write_text(
        HEAD
        + "load: {calls: 1}\npromises: [every_call_ends_once]\n"
        + yaml.safe_dump({"tools": tools})
    )
    return file


def test_code_of_a_file_runs_only_with_trust(runs_code: Path) -> None:
    refused = invoke("run", runs_code)
    assert refused.exit_code == 2
    assert refused.stderr == (
        f"{runs_code}:4: sandbox.executor: this would run the code of its programs on "
        "this machine; "
        "if you trust the file, add --trust\n"
    )
    assert invoke("run", runs_code, "--trust").exit_code == 0


def test_a_class_of_a_file_is_imported_only_with_trust(names_a_class: Path) -> None:
    refused = invoke("run", names_a_class)
    assert refused.exit_code == 2
    assert (
        f"{names_a_class}:6: tools.0.class_name: this would import and run the class "
        "'strangers_tool.Evil'"
    ) in refused.stderr
    assert not names_a_class.with_name("imported").exists()
    assert invoke("check", names_a_class).exit_code == 0
    assert not names_a_class.with_name("imported").exists()
    assert invoke("run", names_a_class, "--trust").exit_code == 0
    assert names_a_class.with_name("imported").exists()


def test_a_matrix_and_an_extended_file_hide_nothing(runs_code: Path) -> None:
    child = runs_code.with_name("child.yaml")
    child.write_text(
        "extends: strange\nscenario: child\nmatrix: {sandbox.executor: [scripted, python]}\n"
    )
    refused = invoke("run", child)
    assert refused.exit_code == 2
    assert f"{child}:3: sandbox.executor" in refused.stderr
    child.write_text("extends: strange\nscenario: child\n")
    assert f"{runs_code}:4: sandbox.executor" in invoke("run", child).stderr


def test_tools_on_the_command_line_need_no_trust_but_the_code_of_the_file_does(
    names_a_class: Path,
) -> None:
    tools = names_a_class.with_name("tools.yaml")
    schema = {
        "type": "function",
        "function": {"name": "f", "description": "", "parameters": PARAMETERS},
    }
    entry = {"class_name": "strangers_tool.Evil", "config": CONFIG, "tool_schema": schema}
    tools.write_text(yaml.safe_dump({"tools": [entry]}))
    assert invoke("run", names_a_class, "--tools", tools).exit_code == 0
    really = names_a_class.with_name("really.yaml")
    really.write_text(HEAD + "sandbox: {executor: python}\n" + TAIL % "ran")
    refused = invoke("run", really, "--tools", tools)
    assert refused.exit_code == 2
    assert "sandbox.executor" in refused.stderr
    assert "class_name" not in refused.stderr


def test_a_scripted_scenario_needs_no_trust_and_its_folder_is_not_searched_for_modules(
    tmp_path: Path,
) -> None:
    (tmp_path / "ipykernel.py").write_text("raise SystemExit(77)")
    file = tmp_path / "scripted.yaml"
    file.write_text(HEAD + "load: {calls: 1}\npromises: [every_call_ends_once]\n")
    assert invoke("run", file).exit_code == 0
    assert str(tmp_path) not in sys.path


def test_our_own_classes_need_no_trust(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    tools = [
        {
            "class_name": "sfusion_tools.sandbox_fusion_tools.SandboxFusionTool",
            "config": {"rate_limit": 3},
        }
    ]
    file.write_text(
        HEAD
        + "load: {calls: 1}\npromises: [every_call_ends_once]\n"
        + yaml.safe_dump({"tools": tools})
    )
    assert invoke("run", file).exit_code == 0


def test_an_artifact_is_replayed_only_with_trust_even_of_a_bundled_scenario(tmp_path: Path) -> None:
    ran = invoke("run", "really-run", "--out", tmp_path)
    assert ran.exit_code == 0
    refused = invoke("replay", tmp_path / "really-run")
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"{tmp_path / 'really-run' / 'scenario.yaml'}:")
    assert refused.stderr.endswith("if you trust the file, add --trust\n")
    assert (
        f"sfusion replay {tmp_path / 'really-run'} --trust"
        in (tmp_path / "really-run" / "report.html").read_text()
    )
    assert invoke("replay", tmp_path / "really-run", "--trust").exit_code == 0


def test_no_other_way_to_run_a_task_forgets_to_ask(runs_code: Path) -> None:
    scenario = parse_scenarios(runs_code.read_text())[0]
    with pytest.raises(Untrusted, match=r"sandbox\.executor"):
        run_one(Task(scenario, "sim"))


def test_python_code_that_runs_a_scenario_trusts_it(runs_code: Path) -> None:
    (result,) = run_scenario(runs_code)
    assert result.ok


def test_a_hunt_with_tools_of_the_command_line_runs_them(names_a_class: Path) -> None:
    tools = names_a_class.with_name("tools.yaml")
    schema = {
        "type": "function",
        "function": {"name": "f", "description": "", "parameters": PARAMETERS},
    }
    entry = {"class_name": "strangers_tool.Evil", "config": CONFIG, "tool_schema": schema}
    tools.write_text(yaml.safe_dump({"tools": [entry]}))
    hunted = invoke("hunt", "--tools", tools, "--cases", "2", "--jobs", "1")
    assert hunted.exit_code == 0
    assert "2 cases" in hunted.stdout


def test_the_code_in_a_script_of_a_rollout_runs_only_when_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "turns: [{calls: [{name: code_interpreter, arguments: {code: print(1)}}]}, "
        "done]\notherwise: done\n"
    )
    words = ["rollout", "--out", tmp_path / "dump", "--problems", 1, "--policy", f"script:{script}"]
    refused = invoke(*words)
    assert refused.exit_code == 2
    assert "this would run the code of its calls on this machine" in refused.stderr
    assert not (tmp_path / "dump").exists()
    assert invoke(*words, "--sandbox-executor", "scripted").exit_code == 0
