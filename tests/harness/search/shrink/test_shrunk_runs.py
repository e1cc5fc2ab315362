"""Real failures are shrunk to a few calls, and a shrunk run can be kept as a scenario."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.runs import Task, adapt_tasks, read_tasks, run_one
from sfusion.harness.lab.scenarios import read_scenarios, scenario_files
from sfusion.harness.search.shrink import Budget, Reproduces, failures_of, shrink, with_right_tool
from tests.proof.mistakes import MISTAKES, races
from tests.proof.proof import Proof
from tests.reference_tool import GoodTool, tool_config

SEEDS = [{kind: seed} for seed in range(1, 4) for kind in ("random", "priority")]
RACES = [one for one in MISTAKES.values() if one.tool.__module__ == races.__name__]


def sfusion(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    return result.exit_code, result.output


def shrunk(task: Task, promise: str) -> dict[str, Any]:
    failure = next(one for one in failures_of(run_one(task)) if one.promise == promise)
    found = shrink(
        task.scenario, Reproduces(task.scenario, failure), Budget(cases=400, seconds=None)
    )
    assert found.finished
    assert failure in failures_of(run_one(Task(found.scenario, "sim", trusted=True)))
    right = failures_of(run_one(Task(with_right_tool(found.scenario), "sim")))
    assert promise not in {one.promise for one in right}, "a right tool keeps the promise"
    return found.scenario.plain


SHRUNK = ("limiter-of-its-own", "never-retries", "outage-scored-zero")


@pytest.fixture(scope="module")
def proof() -> Proof:
    return Proof(" or ".join(SHRUNK))


@pytest.mark.parametrize("name", SHRUNK)
def test_a_mistake_is_shrunk_to_a_few_calls_and_rules(name: str, proof: Proof) -> None:
    case = next(one for one in proof.cases if one.row == name)
    data = shrunk(case.task, str(proof.rows[name].promise))
    assert data["load"]["calls"] <= 3
    assert len(data.get("sandbox", {}).get("faults", [])) + len(data.get("events", [])) <= 1
    assert len(data["promises"]) == 1


CELLS = {task.name: task for task in read_tasks(scenario_files(["same-moment"]), "sim")}


def played(tool: type[GoodTool], cell: str, schedule: dict[str, int] | None) -> Task:
    return adapt_tasks([CELLS[cell]], tools=tool_config(tool), schedule=schedule)[0]


@pytest.mark.parametrize("race", RACES, ids=lambda race: race.name)
def test_a_race_is_not_seen_first_in_first_out_but_soon_with_seeds_and_shrunk_to_a_few_deviations(
    race: Any,
) -> None:
    (cell,) = race.shown_in
    assert failures_of(run_one(played(race.tool, cell, None))) == []
    for schedule in SEEDS:
        assert failures_of(run_one(played(GoodTool, cell, schedule))) == []
    for kind in ("random", "priority"):
        tasks = [played(race.tool, cell, schedule) for schedule in SEEDS if kind in schedule]
        found = [
            task
            for task in tasks
            if race.promise in {one.promise for one in failures_of(run_one(task))}
        ]
        assert found, kind
    data = shrunk(played(race.tool, cell, race.schedule), race.promise)
    assert data["load"]["calls"] <= 2
    assert 1 <= len(data["schedule"]["deviations"]) <= 2


def test_shrink_and_keep_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tools = tmp_path / "tools.yaml"
    tools.write_text(yaml.safe_dump({"tools": tool_config(races.AnswersInOrder)}))
    given = (
        "run",
        "same-moment",
        "-k",
        "seconds=0s",
        "--tools",
        tools,
        "--jobs",
        "1",
        "--out",
        "runs",
    )
    assert sfusion(*given)[0] == 0
    assert sfusion(*given, "--schedule", "1")[0] == 1
    run = Path("runs/same-moment[seconds=0s]")

    assert sfusion("shrink", run)[0] == 2, "it names a class"
    code, output = sfusion("shrink", run, "--promise", "answers_are_own", "--trust")
    assert code == 0, output
    assert "to   2 calls, 1 worker, 0 rules, 0 events, 1 deviation" in output
    assert f"sfusion run '{run}/shrunk.yaml' --trust" in output
    text = (run / "shrunk.yaml").read_text()
    assert text.startswith("# Breaks answers_are_own: call c000")
    assert "makes call c0002" in text
    assert sfusion("run", run / "shrunk.yaml", "--trust")[0] == 1
    assert sfusion("replay", run, "--trust")[0] == 1, "the recorded run itself is untouched"

    kept = Path("scenarios/found/answers-swapped.yaml")
    assert sfusion("shrink", run, "--keep", kept)[0] == 2, "it names a class"
    code, output = sfusion("shrink", run, "--keep", kept, "--trust")
    assert code == 0, output
    assert output == f"{kept}\nrun it: sfusion run {kept} --trust\n", "it was shrunk before"
    (scenario,) = read_scenarios(kept)
    assert "answers_are_own" in [promise.name for promise in scenario.promises]
    assert scenario.schedule is not None
    code, output = sfusion("run", kept, "--trust")
    assert code == 1
    assert "broken: answers_are_own" in output
    assert sfusion("run", kept, "--tools", tools)[0] == 1, "with the settings of the scenario"
    tools.write_text(yaml.safe_dump({"tools": tool_config(GoodTool)}))
    assert sfusion("run", kept, "--tools", tools)[0] == 0, "the defect is mended"

    code, output = sfusion("shrink", run, "--keep", kept, "--trust")
    assert code == 2
    assert "exists already" in output
    assert sfusion("shrink", run, "--keep", kept.parent, "--trust")[0] == 0
    assert Path("scenarios/found/same-moment-answers-are-own.yaml").is_file()

    mended, verdict = Path("mended/answers-swapped.yaml"), run / "verdict.json"
    given = ("shrink", run, "--keep", mended, "--tools", tools)
    verdict.write_text(verdict.read_text().replace("answers_are_own", "arguments_are_own"))
    code, output = sfusion(*given)
    assert (code, "another run: verdict.json; run" in output.replace("\n", " ")) == (2, True), (
        output
    )
    verdict.write_text(verdict.read_text().replace("arguments_are_own", "answers_are_own"))
    assert sfusion(*given)[0] == 0
    assert mended.read_text().startswith("# Broke answers_are_own"), "only the recording says so"


def test_commands_that_are_printed_can_be_pasted_whatever_the_files_are_called(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "my runs" / "bad[concurrency=16]"
    folder.mkdir(parents=True)
    file, tools, kept = (
        folder / "silent.yaml",
        folder / "my tools.yaml",
        folder / "my kept" / "silent.yaml",
    )
    file.write_text(
        "scenario: silent\nabout: x\nload: {calls: 1}\n"
        "sandbox: {faults: [{what: hang}]}\npromises: [{outcomes: {ok: all}}]\n"
    )
    tools.write_text(yaml.safe_dump({"tools": tool_config(GoodTool)}))

    def pasted(*arguments: object) -> list[list[str]]:
        code, output = sfusion("shrink", *arguments, "--tools", tools)
        assert code == 0, output
        lines = [line.partition(": ")[2] for line in output.splitlines() if "it: " in line]
        return [shlex.split(line)[1:] for line in lines]

    shrunk, with_tools = str(folder / "shrunk.yaml"), ["--tools", str(tools)]
    assert pasted(file) == [
        ["run", shrunk, *with_tools],
        ["shrink", shrunk, *with_tools, "--keep", "scenarios/found"],
    ]
    code, output = sfusion("shrink", shrunk, "--keep", folder / "it's kept.yaml", "--tools", tools)
    assert (code, "is not a name: use lowercase letters" in output.replace("\n", " ")) == (2, True)
    assert pasted(shrunk, "--keep", kept) == [["run", str(kept), *with_tools]]


def test_what_cannot_be_shrunk_says_why(tmp_path: Path) -> None:
    fine = tmp_path / "fine.yaml"
    fine.write_text(
        "scenario: fine\nabout: x\nload: {calls: 2}\npromises: [every_call_ends_once]\n"
    )
    code, output = sfusion("shrink", fine)
    assert (code, "no promise is broken" in output) == (2, True)
    code, output = sfusion("shrink", fine, "--promise", "outcome")
    assert (code, "did you mean" in output) == (2, True)
    assert sfusion("run", fine, "--out", tmp_path / "out")[0] == 0
    code, output = sfusion("shrink", tmp_path / "out" / "fina")
    assert (code, "fina: no such folder or file; did you mean 'fine'?" in output) == (2, True)
    fine.write_text(fine.read_text() + "matrix: {seed: [1, 2]}\n")
    code, output = sfusion("shrink", fine)
    assert (code, "a matrix of 2 cells" in output) == (2, True)
    assert sfusion("shrink", tmp_path)[0] == 2
    code, output = sfusion("shrink", tmp_path / "nowhere")
    assert (code, "nowhere: no such folder or file; give the folder of a run" in output) == (
        2,
        True,
    )


def test_a_promise_that_is_judged_without_being_named_is_added(tmp_path: Path) -> None:
    file = tmp_path / "raising.yaml"
    config = tool_config(MISTAKES["needs-its-limiter"].tool)
    config[0]["config"]["enable_global_rate_limit"] = False
    data = {"scenario": "raising", "about": "x", "tools": config, "load": {"calls": 5}}
    file.write_text(yaml.safe_dump({**data, "promises": ["no_duplicate_execution"]}))
    code, output = sfusion("shrink", file, "--keep", tmp_path / "found", "--trust")
    assert code == 0, output
    assert (tmp_path / "shrunk.yaml").is_file(), "a file is shrunk first"
    (kept,) = (tmp_path / "found").iterdir()
    (scenario,) = read_scenarios(kept)
    assert [promise.name for promise in scenario.promises] == ["tool_never_raises"]
