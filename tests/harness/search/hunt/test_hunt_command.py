"""``sfusion hunt`` as a command: exit codes, and the runs that it writes."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sfusion.harness.search.hunt import case as case_module
from sfusion.harness.search.hunt.command import HuntOptions, hunt
from sfusion.harness.search.shrink.command import keep
from tests import ROOT
from tests.harness.search.hunt.bad_tools import Blocking, Exiting
from tests.proof.mistakes.texts import ExitCodeIgnored
from tests.reference_tool import GoodTool, tool_config

SCENARIO = """
scenario: two-calls
about: Two calls.
load: {calls: 2, concurrency: 1, program: {exit: 1, errors: "boom {call}\\n"}}
promises: [tool_never_raises]
"""


def options(folder: Path, tool: type[GoodTool]) -> HuntOptions:
    (folder / "near.yaml").write_text(SCENARIO)
    (folder / "tools.yaml").write_text(yaml.safe_dump({"tools": tool_config(tool)}))
    return HuntOptions(
        cases=1,
        near=[str(folder / "near.yaml")],
        tools=folder / "tools.yaml",
        jobs=1,
        out=folder / "found",
    )


def runs_in(folder: Path) -> list[Path]:
    """Return the runs in a folder, where there may be a lock beside them."""
    return [path for path in folder.iterdir() if path.is_dir()]


def test_each_finding_of_a_case_is_a_run_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = replace(options(tmp_path, ExitCodeIgnored), out=tmp_path / "found here")
    assert hunt(given) == 1
    output = capsys.readouterr().out
    assert "\x1b" not in output
    runs = {run.name.split("-", 2)[2]: run for run in runs_in(tmp_path / "found here")}
    pasted = [shlex.split(line) for line in output.splitlines() if "sfusion replay" in line]
    assert sorted(pasted) == sorted(["sfusion", "replay", str(run)] for run in runs.values())
    assert {"text-is-truthful", "outcomes"} <= runs.keys()
    for name, run in runs.items():
        (promise,) = yaml.safe_load((run / "scenario.yaml").read_text())["promises"]
        assert (promise if isinstance(promise, str) else next(iter(promise))).replace(
            "_", "-"
        ) == name
        assert (run / "journal.ndjson").exists()
    kept = keep(runs["outcomes"], tmp_path / "kept", tools=given.tools)
    assert kept.stem == runs["outcomes"].name


def test_nothing_found_is_success(tmp_path: Path) -> None:
    assert hunt(options(tmp_path, GoodTool)) == 0


@pytest.mark.parametrize("tool", [Blocking, Exiting])
def test_tools_that_block_or_exit_end_neither_the_hunt_nor_its_shrinking(
    tool: type[GoodTool], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool is Blocking:
        monkeypatch.setattr(case_module, "REAL_SECONDS", 2.0)
    assert hunt(options(tmp_path, tool)) == 1
    (run,) = runs_in(tmp_path / "found")
    assert run.name.endswith("-error")


def test_the_hunt_of_the_docs_finds_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "hunting.md").read_text(encoding="utf-8")
    (tmp_path / "tool.yaml").write_text(page.partition("```yaml\n")[2].partition("```")[0])
    assert hunt(HuntOptions(cases=10, seed=1, tools=tmp_path / "tool.yaml", jobs=1)) == 1
    told = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("found in case")
    )
    assert told in page.splitlines()
