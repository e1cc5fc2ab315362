"""``sfusion run`` in a process of its own, with every report it can write."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.warm import warm

SCENARIO = """\
scenario: planted
about: Programs print a script.
seed: 5
matrix: {tools.rate_limit: [1, 2]}
load: {calls: 5, concurrency: 5, program: {prints: "<script>window.planted = true</script>"}}
promises: [every_call_ends_once, {outcomes: {ok: EXPECTED}}]
"""


def sfusion(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [warm("sfusion"), *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(("expected", "code", "state"), [("all", 0, "held"), ("none", 1, "broken")])
def test_all_reports_agree(tmp_path: Path, expected: str, code: int, state: str) -> None:
    (tmp_path / "planted.yaml").write_text(SCENARIO.replace("EXPECTED", expected))
    wanted = [
        "--out",
        "runs",
        "--html",
        "deep/index.html",
        "--junit",
        "j.xml",
        "--summary",
        "s.md",
        "--json",
        "s.json",
    ]
    done = sfusion(tmp_path, "run", "planted.yaml", "--jobs", "1", *wanted)
    assert (done.returncode, done.stderr) == (code, "")
    assert "\x1b" not in done.stdout
    runs = json.loads((tmp_path / "s.json").read_text())["runs"]
    assert [(run["state"], run["calls"], run["outcomes"]) for run in runs] == [
        (state, 5, {"ok": 5})
    ] * 2
    failures = len(ElementTree.parse(tmp_path / "j.xml").findall(".//failure"))
    assert failures == (0 if state == "held" else 2)
    assert ("❌" in (tmp_path / "s.md").read_text(encoding="utf-8")) is (state == "broken")
    index = (tmp_path / "deep" / "index.html").read_text(encoding="utf-8")
    for run in runs:
        folder = tmp_path / run["directory"]
        assert {file.name for file in folder.iterdir()} == {
            "scenario.yaml",
            "journal.ndjson",
            "verdict.json",
            "report.html",
        }
        page = (folder / "report.html").read_text(encoding="utf-8")
        assert "window.planted" in page
        assert "<script>window.planted" not in page
        quoted = folder.name.replace("[", "%5B").replace("]", "%5D").replace("=", "%3D")
        assert f'href="../runs/{quoted}/report.html"' in index
        # The brackets of a cell are quoted, since a shell would expand them.
        assert (f"sfusion replay '{run['directory']}'" in done.stdout) is (state == "broken")


def test_the_html_file_of_a_single_run_is_its_page(tmp_path: Path) -> None:
    text = SCENARIO.replace("EXPECTED", "all").replace("matrix: {tools.rate_limit: [1, 2]}\n", "")
    (tmp_path / "planted.yaml").write_text(text)
    assert sfusion(tmp_path, "run", "planted.yaml", "--html", "page.html").returncode == 0
    assert 'id="lanes"' in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--html", "--html taken: is a folder; give a file"),
        ("--junit", "--junit taken: is a folder; give a file"),
    ],
)
def test_an_unwritable_report_is_an_error_before_anything_runs(
    tmp_path: Path, option: str, message: str
) -> None:
    (tmp_path / "planted.yaml").write_text(SCENARIO.replace("EXPECTED", "all"))
    (tmp_path / "taken").mkdir()
    done = sfusion(tmp_path, "run", "planted.yaml", option, "taken")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", message)


def test_an_out_folder_that_is_a_file_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "planted.yaml").write_text(SCENARIO.replace("EXPECTED", "all"))
    (tmp_path / "taken").write_text("")
    done = sfusion(tmp_path, "run", "planted.yaml", "--out", "taken")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a file; give a folder" in done.stderr
