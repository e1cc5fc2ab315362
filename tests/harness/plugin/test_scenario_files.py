"""Scenario files as tests: which are collected, and how broken promises are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from sfusion.harness.lab.runs import read_run
from tests.harness.plugin.conftest import LOUD, Run

pytest_plugins = ["pytester"]


def test_every_cell_of_a_named_folder_is_an_item(project: Path, run_pytest: Run) -> None:
    result = run_pytest("-v", "scenarios")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines_random(
        ["scenarios/quiet.yaml::quiet PASSED*", "scenarios/cells.yml::cells[[]*=2[]] PASSED*"]
    )


def test_a_file_or_a_single_cell_can_be_selected(project: Path, run_pytest: Run) -> None:
    run_pytest("scenarios/quiet.yaml").assert_outcomes(passed=1)
    run_pytest("scenarios/quiet.yaml::quiet").assert_outcomes(passed=1)
    run_pytest("scenarios", "-k", "cells").assert_outcomes(passed=3, deselected=1)


def test_files_that_were_not_named_are_not_collected(
    project: Path, run_pytest: Run, run_apart: Run
) -> None:
    run_pytest().assert_outcomes(passed=1)
    (project / "pytest.ini").write_text("[pytest]\ntestpaths = scenarios test_own.py\n")
    run_pytest().assert_outcomes(passed=1)
    run_apart("-n", "1").assert_outcomes(passed=1)


def test_the_ini_option_names_folders_for_plain_pytest(project: Path, run_pytest: Run) -> None:
    (project / "pytest.ini").write_text("[pytest]\nsfusion_scenarios = scenarios\n")
    run_pytest().assert_outcomes(passed=5)


def test_other_yaml_files_are_ignored_even_if_broken(project: Path, run_pytest: Run) -> None:
    (project / "scenarios" / "helm.yaml").write_text("{{ if .Values }}\nscenario: x\n{{ end }}\n")
    (project / "scenarios" / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    run_pytest(".").assert_outcomes(passed=5)


def test_items_are_spread_over_the_workers_of_xdist(project: Path, run_apart: Run) -> None:
    result = run_apart("-n", "2", "scenarios", "--sfusion-out", "runs")
    result.assert_outcomes(passed=4)
    assert len(list((project / "runs").glob("*/journal.ndjson"))) == 4


def test_a_broken_promise_shows_its_sentence_and_no_traceback(
    project: Path, run_pytest: Run
) -> None:
    (project / "scenarios" / "loud.yaml").write_text(LOUD)
    result = run_pytest("scenarios/loud.yaml", "--sfusion-out", "runs")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "loud: not every promise held (world sim, seed 4)",
            "  broken: outcomes: 3 of 3 calls ended sandbox_error*",
            "*sfusion replay runs/loud*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_items.py*")
    _, journal, verdicts = read_run(project / "runs" / "loud")
    assert journal.header["seed"] == 4
    assert [one.state for one in verdicts] == ["held", "broken"]
    assert (project / "runs" / "loud" / "report.html").is_file()


def test_a_problem_in_a_file_is_reported_with_its_line(project: Path, run_pytest: Run) -> None:
    (project / "scenarios" / "typo.yaml").write_text(LOUD.replace("concurrency", "concurency"))
    result = run_pytest("scenarios/typo.yaml")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*typo.yaml:7:*concurency*concurrency*"])


def test_a_scenario_of_another_world_is_skipped_with_the_reason(
    project: Path, run_pytest: Run
) -> None:
    (project / "scenarios" / "real.yaml").write_text(LOUD + "worlds: [ray]\n")
    result = run_pytest("scenarios/real.yaml", "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*runs only in world ray*"])


def test_the_plugin_imports_nothing_heavy_until_it_is_used(project: Path, run_apart: Run) -> None:
    (project / "test_own.py").write_text(
        "import sys\n\n\ndef test_nothing_was_loaded():\n"
        "    heavy = ('aiohttp', 'jinja2', 'pydantic', 'ray', 'rich', 'yaml')\n"
        "    assert not [name for name in sys.modules if name.split('.')[0] in heavy]\n"
        "    ours = [name for name in sys.modules if name.startswith(('sfusion.', "
        "'sfusion_tools.'))]\n"
        "    assert ours == ['sfusion_tools._lazy', 'sfusion.harness', "
        "'sfusion.harness.pytest_plugin']\n"
    )
    run_apart(".", "--deselect", "scenarios", "--ignore", "scenarios").assert_outcomes(passed=1)


@pytest.mark.parametrize("option", ["--markers", "--fixtures", "--help"])
def test_pytest_help_lists_the_options_of_the_plugin(
    project: Path, run_pytest: Run, option: str
) -> None:
    wanted = {
        "--markers": "*sandbox_faults(rules)*",
        "--fixtures": "*run_scenario*",
        "--help": "*--sfusion-out*",
    }
    run_pytest(option).stdout.fnmatch_lines([wanted[option]])
