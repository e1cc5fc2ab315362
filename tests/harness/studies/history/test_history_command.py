"""``--out`` keeps earlier runs, and ``sfusion history`` shows them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab.runs.runner import run_all
from sfusion.harness.lab.runs.tasks import read_tasks
from sfusion.harness.studies.history.store import earlier_runs, written_with_history

SCENARIO = """\
scenario: kept
about: Six calls.
load: {calls: 6, concurrency: 2, program: {seconds: 100ms}}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kept.yaml").write_text(SCENARIO)
    return tmp_path


def run(*arguments: str) -> str:
    result = CliRunner().invoke(
        app, ["run", "kept.yaml", "--jobs", "1", "--out", "runs", *arguments]
    )
    assert result.exit_code in (0, 1), result.output
    return result.output


def history(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["history", *arguments])
    return result.exit_code, result.output


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_the_latest_run_stays_in_place_and_earlier_ones_are_kept_beside_it(folder: Path) -> None:
    run("--seed", "1")
    before = {path.name: path.read_bytes() for path in (folder / "runs" / "kept").iterdir()}
    run("--seed", "2")
    kept = folder / "runs" / ".history" / "kept"
    assert {path.name: path.read_bytes() for path in (kept / "0001").iterdir()} == before
    assert files(folder / "runs" / "kept") == [
        "journal.ndjson",
        "report.html",
        "scenario.yaml",
        "verdict.json",
    ]
    assert json.loads((folder / "runs" / "kept" / "verdict.json").read_text())["seed"] == 2
    compared = CliRunner().invoke(app, ["compare", str(kept / "0001"), "runs/kept"])
    assert (compared.exit_code, "seed: 1 -> 2" in compared.output) == (0, True)
    replayed = CliRunner().invoke(app, ["replay", "runs"])
    assert replayed.output.count("the same journal") == 1


def test_equal_runs_are_recorded_but_kept_once(folder: Path) -> None:
    for seed in ("1", "1", "2", "2", "1"):
        run("--seed", seed)
    kept = folder / "runs" / ".history" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["0002", "0004", "records.ndjson"]
    code, _ = history("--json", "answer.json")
    records = json.loads((folder / "answer.json").read_text())["scenarios"]["kept"]
    assert code == 0
    assert [record["run"] for record in records] == [1, 2, 3, 4, 5]
    places = [
        f"runs/{name}"
        for name in ("kept", "kept", ".history/kept/0004", ".history/kept/0004", "kept")
    ]
    assert [record["folder"] for record in records] == places
    assert records[0]["figures"]["outcomes"] == {"ok": 6}


def test_a_run_without_a_record_is_not_kept_as_that_of_another(folder: Path) -> None:
    run("--seed", "1")
    run("--seed", "2", "--history", "0")
    kept = folder / "runs" / ".history" / "kept"
    assert json.loads((kept / "0001" / "verdict.json").read_text())["seed"] == 1
    assert (kept / "0001" / "report.html").is_file()
    history("--json", "answer.json")
    (record,) = json.loads((folder / "answer.json").read_text())["scenarios"]["kept"]
    assert (record["run"], record["folder"]) == (1, "runs/.history/kept/0001")
    run("--seed", "3")
    assert sorted(path.name for path in kept.iterdir()) == ["0001", "records.ndjson"]


def test_runs_in_parallel_are_all_recorded(folder: Path) -> None:
    (result,) = run_all(read_tasks([folder / "kept.yaml"], "sim"))

    def write(number: int) -> None:
        now, out = datetime.now(UTC), folder / "runs"
        with written_with_history(
            result, out, limit=100, now=now, commit="", on_damage=pytest.fail
        ) as place:
            (place / "report.html").write_text(str(number))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(20)))
    records = (folder / "runs" / ".history" / "kept" / "records.ndjson").read_text().splitlines()
    assert [json.loads(line)["run"] for line in records] == list(range(1, 21))


def test_the_history_is_bounded(folder: Path) -> None:
    for seed in range(5):
        run("--seed", str(seed), "--history", "3")
    kept = folder / "runs" / ".history" / "kept"
    assert sorted(path.name for path in kept.iterdir()) == ["0003", "0004", "records.ndjson"]
    assert len((kept / "records.ndjson").read_text().splitlines()) == 3


def test_no_history_on_request(folder: Path) -> None:
    run("--history", "0")
    assert not (folder / "runs" / ".history").exists()
    code, text = history()
    assert (code, "runs: no history; `sfusion run --out runs` keeps one" in text) == (2, True)


@pytest.mark.parametrize(
    ("damaged", "left", "number", "why"),
    [
        (
            lambda lines: [lines[0], b'{"run": "x"}\n', lines[2]],
            [1, 3],
            4,
            "2: run of a record: expected int",
        ),
        (lambda lines: [*lines[:2], lines[2][:40]], [1, 2], 3, "3: not JSON"),
        (lambda lines: [], [], 3, "1: no record in it"),
        (lambda lines: [b"\xff\n"] * 3, [], 3, "1: not JSON"),
    ],
    ids=["middle", "last", "emptied", "all"],
)
def test_a_damaged_history_is_told_and_loses_nothing_but_its_damaged_lines(
    folder: Path,
    damaged: Callable[[list[bytes]], list[bytes]],
    left: list[int],
    number: int,
    why: str,
) -> None:
    for seed in ("1", "2", "3"):
        run("--seed", seed)
    kept = folder / "runs" / ".history" / "kept"
    records = kept / "records.ndjson"
    content = b"".join(damaged(records.read_bytes().splitlines(keepends=True)))
    records.write_bytes(content)
    code, text = history()
    assert (code, f"records.ndjson:{why}" in text) == (2, True)
    text = run("--seed", "4")
    assert f"records.ndjson:{why}" in text
    aside = kept / f"records.damaged-{number:04d}.ndjson"
    assert (aside.read_bytes(), str(aside.relative_to(folder)) in text) == (content, True)
    assert [json.loads(line)["run"] for line in records.read_text().splitlines()] == [*left, number]
    seeds = {
        path.name: json.loads((path / "verdict.json").read_text())["seed"]
        for path in earlier_runs(kept)
    }
    assert seeds == {"0001": 1, "0002": 2} | ({"0003": 3} if 3 in left else {})
    assert "records.damaged" not in run("--seed", "5"), "it is told once"
    assert history()[0] == 0


def test_verdicts_and_figures_over_commits(folder: Path) -> None:
    def commit() -> str:
        git = [
            "git",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "-c",
            "commit.gpgsign=false",
        ]
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
        command = ["git", "rev-parse", "--short=10", "HEAD"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    subprocess.run(["git", "init", "-q", "."], check=True)
    first = commit()
    run()
    history("kept", "--html", "page.html")
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert ("1 run</span>" in page, "<svg class=" in page) == (True, False), (
        "one run has no course to plot"
    )
    (folder / "kept.yaml").write_text(SCENARIO.replace("ok: all", "ok: none"))
    second = commit()
    run()
    code, text = history("kept", "--html", "page.html")
    assert code == 0
    rows = [line.split() for line in text.splitlines()[2:4]]
    assert [(row[0], row[3], row[4]) for row in rows] == [
        ("2", second, "broken"),
        ("1", first, "held"),
    ]
    assert "outcomes: held -> broken" in text
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg class=") == 2
    assert page.count('fill="var(--broken)"') == 4, "the same colour in both plots"
    assert "2 runs</span>" in page
    code, text = history("kep")
    assert (code, "did you mean 'kept'?" in text) == (2, True)


def test_without_a_name_each_scenario_has_a_line_with_its_last_change(folder: Path) -> None:
    (folder / "other.yaml").write_text(
        SCENARIO.replace("kept", "other") + "matrix: {tools.rate_limit: [1, 2]}\n"
    )
    for seed in ("1", "2"):
        run("other.yaml", "--seed", seed)
    code, text = history()
    assert code == 0
    assert [line.split()[:3] for line in text.splitlines()[1:]] == [
        ["held", "kept", "run"],
        ["held", "other[rate_limit=1]", "run"],
        ["held", "other[rate_limit=2]", "run"],
    ]
    assert text.count("run 2: other journal") == 3
    assert history("other")[1].count("first") == 2
