"""Scenarios with real sandboxes: the generated programs, and which scenarios need the fake."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sfusion.harness.lab.runs import read_tasks, select_tasks
from sfusion.harness.lab.scenarios import parse_scenarios, scenario_files
from sfusion.harness.lab.scenarios.program import ProgramPart
from tests.patience import PATIENCE

PROGRAMS: list[dict[str, Any]] = [
    {"prints": "{call}\n"},
    {"early": "first\n", "prints": "then\n", "errors": "careful\n"},
    {"prints": "a{fill:5000}b\n"},
    {"prints": "quotes ' \" \\ and \u00e9\u4e2d\n"},
    {"prints": "", "exit": 3},
    {"prints": "gone\n", "exit": -9},
    {"prints": "before\n", "raises": "ValueError: rotten"},
    {"prints": "before\n", "raises": "torch.OutOfLuck: none left"},
    {"prints": "", "raises": "KeyboardInterrupt"},
    {"prints": "held\n", "memory": 3},
    {"prints": "later\n", "seconds": "10ms"},
]


def run(part: ProgramPart) -> subprocess.CompletedProcess[str]:
    code = part.prepare("c0001", seed=0).arguments["code"]
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        encoding="utf-8",
    )


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: "-".join(program))
def test_a_real_program_does_what_the_scenario_says(program: dict[str, Any]) -> None:
    part = ProgramPart.model_validate({**program, "real": True})
    written = part.prepare("c0001", seed=0)
    ran = run(part)
    assert ran.stdout == written.early + written.prints
    assert ran.returncode == (
        part.exit if not part.raises else -2 if part.raises == "KeyboardInterrupt" else 1
    )
    assert part.errors in ran.stderr
    if part.raises:
        assert ran.stderr.rstrip().endswith(part.raises)


def test_a_long_fill_stays_short_in_the_code() -> None:
    part = ProgramPart(prints="{fill:200000}", real=True)
    prepared = part.prepare("c1", seed=0)
    assert len(prepared.arguments["code"]) < 1000
    assert len(prepared.prints) == 200_000


def test_real_programs_keep_the_mark_and_hints_for_the_fake() -> None:
    plain, real = (
        ProgramPart(prints="x\n", real=value).prepare("c1", seed=0) for value in (False, True)
    )
    assert real.arguments["code"].startswith(plain.arguments["code"])
    assert plain.intent(30.0) == real.intent(30.0)


def scenario(**keys: Any) -> Any:
    data = {"scenario": "s", "about": "a", "promises": ["every_call_ends_once"], "load": {}, **keys}
    return parse_scenarios(
        yaml.safe_dump({key: value for key, value in data.items() if value is not None})
    )[0]


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"sandbox": {"model": {"kind": "unbounded", "cores": 2}}}, "cores"),
        ({"sandbox": {"model": {"kind": "queue", "spawn_cost": 0.04}}}, "spawn_cost"),
        (
            {
                "sandbox": {
                    "instances": 2,
                    "each": {"sandbox-2": {"model": {"kind": "unbounded", "cores": 2}}},
                }
            },
            "cores",
        ),
        ({"load": {"program": {"whole": True}}}, "whole"),
        ({"load": {"program": {"sandbox_error": "no"}}}, "sandbox_error"),
        ({"load": {"program": {"language": "cpp", "compile_exit": 1}}}, "compiler"),
        ({"load": {"program": {"language": "cpp"}}}, "only for Python, not cpp"),
        ({"tools": {"default_language": "bash"}}, "only for Python, not bash"),
    ],
)
def test_scenarios_that_need_the_fake_say_why(keys: dict[str, Any], why: str) -> None:
    assert why in (scenario(**keys).needs_fake or "")


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"sandbox": {"model": {"kind": "quota", "in_flight": 8}, "faults": [{"what": "hang"}]}},
        {"load": {"program": {"language": "cpp", "code": "int main() {}"}}},
        {"load": {"program": {"arguments": {"code": 3}}}},
        {"load": None, "rollouts": {"turns": [{"say": "hm", "programs": [{"prints": "4\n"}]}]}},
    ],
)
def test_other_scenarios_can_run_on_a_real_sandbox(keys: dict[str, Any]) -> None:
    made = scenario(**keys)
    assert made.needs_fake is None
    real = made.with_real_programs()
    parts = real.load.program if real.load is not None else real.rollouts.turns[0].programs
    assert all(part.real for part in parts)
    assert real.written == made.written


def test_scenarios_that_need_the_fake_are_skipped_with_the_reason(tmp_path: Path) -> None:
    for name, program in (("fine", "{}"), ("failing", "{sandbox_error: 'no'}")):
        (tmp_path / f"{name}.yaml").write_text(
            f"scenario: {name}\nabout: a\nworlds: [ray]\nload: {{program: {program}}}\n"
            "promises: [every_call_ends_once]\n"
        )
    tasks = read_tasks(scenario_files([str(tmp_path)]), "ray")
    selected, skipped = select_tasks(tasks, real=True)
    assert [task.name for task in selected] == ["fine"]
    assert [count for why, count in skipped.items() if "sandbox_error" in why] == [1]
    assert select_tasks(tasks) == (tasks, {})
