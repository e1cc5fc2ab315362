"""``sfusion compare``: what changed between recorded runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app

pytestmark = pytest.mark.xdist_group("compared runs")

SCENARIO = """\
scenario: compared
about: Ten calls to a gateway.
seed: SEED
tools: {rate_limit: 4, max_attempts: 1}
sandbox: {model: {kind: quota, in_flight: QUOTA}}
load: {calls: 10, concurrency: 5, program: {seconds: 100ms, prints: "42\\n"}}
promises: [every_call_ends_once, {outcomes: {ok: all}}]
"""


def run(
    folder: Path, *, quota: int = 4, seed: int = 1, name: str = "compared", world: str = "sim"
) -> Path:
    """Record a run below the folder."""
    folder.mkdir(exist_ok=True)
    text = (
        SCENARIO.replace("QUOTA", str(quota)).replace("SEED", str(seed)).replace("compared", name)
    )
    file = folder.parent / f"{folder.name}-{name}.yaml"
    file.write_text(text)
    CliRunner().invoke(app, ["run", str(file), "--jobs", "1", "--out", str(folder)])
    recorded = folder / name
    if world != "sim":
        journal = recorded / "journal.ndjson"
        journal.write_text(journal.read_text().replace('"world":"sim"', f'"world":"{world}"', 1))
        scenario = recorded / "scenario.yaml"
        scenario.write_text(scenario.read_text() + f"worlds: [{world}]\n")
    return recorded


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to compare: a good one, the same again, one with a smaller quota, one of another
    name."""
    root = tmp_path_factory.mktemp("recorded")
    run(root / "good")
    shutil.copytree(root / "good", root / "again")
    run(root / "small", quota=2)
    run(root / "small", name="added")
    run(root / "real", quota=2, world="ray")
    return root


def compare(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["compare", *map(str, arguments)])
    return result.exit_code, result.output


def test_a_run_that_got_worse_shows_what_changed_and_where_it_began(
    recorded: Path, tmp_path: Path
) -> None:
    answer, page = tmp_path / "answer.json", tmp_path / "page.html"
    one, other = recorded / "good" / "compared", recorded / "small" / "compared"
    code, text = compare(one, other, "--json", answer, "--html", page)
    assert code == 1
    assert "compared: worse: outcomes; 8 of 10 calls ended differently" in text
    assert "sandbox.model.in_flight: 4 -> 2" in text
    assert "outcomes: held -> broken: " in text
    assert "throttled: 0 -> 8" in text
    assert "ok: 10 -> 2" in text
    assert "c0003: ok -> throttled" in text
    assert 'c0003: "42\\n" -> ' in text
    assert "wait for a permit p95: " in text
    assert "- 0.002000 server started call=c0003" in text
    assert "+ 0.002000 server answered call=c0003 attempt=1 status=429" in text
    (found,) = json.loads(answer.read_text())["runs"]
    assert (found["worse"], found["same"], len(found["texts"]), len(found["first"]["context"])) == (
        True,
        False,
        8,
        3,
    )
    shown = page.read_text(encoding="utf-8")
    assert "1 run got worse" in shown
    for line in ("outcomes: held", "ok: 10", "throttled: 0", "calls ok per second"):
        assert f'<span class="worse">{line}' in shown
    assert '<span class="">call p50' in shown, "calls that fail at once are not better"
    code, text = compare(other, one, "--html", page)
    assert (code, "better: outcomes" in text) == (0, True)
    assert '<span class="better">calls ok per second' in page.read_text(encoding="utf-8")


def test_equal_runs_are_the_same(recorded: Path) -> None:
    code, text = compare(recorded / "good" / "compared", recorded / "again" / "compared", "--exact")
    assert (code, text) == (0, "compared: the same journal and the same verdicts\n\n")


def test_a_promise_that_is_no_longer_checked_is_worse_and_a_new_one_is_not(
    recorded: Path, tmp_path: Path
) -> None:
    one, other = recorded / "good" / "compared", tmp_path / "interrupted"
    shutil.copytree(one, other)
    (other / "verdict.json").unlink()
    code, text = compare(one, other)
    assert (code, "outcomes: held -> (none)" in text) == (1, True)
    answer = tmp_path / "answer.json"
    compare(other, one, "--json", answer)
    assert not json.loads(answer.read_text())["runs"][0]["worse"]


def without_digests(text: str, *names: str) -> str:
    """Return an edited verdict without the digests that would show it, or without those of these
    files."""
    data = json.loads(text.replace('"seed": 1', '"seed": 2'))
    data["digests"] = {
        name: one for name, one in data["digests"].items() if names and name not in names
    }
    return json.dumps({key: one for key, one in data.items() if one or key != "digests"})


OTHERS = "changed, cut short or taken from another run: "
NO_DIGEST = "verdict.json has no digest of "


@pytest.mark.parametrize(
    ("name", "edit", "found"),
    [
        (
            "verdict.json",
            lambda text: text.replace('"seed": 1', '"seed": 2'),
            f"{OTHERS}verdict.json",
        ),
        (
            "journal.ndjson",
            lambda text: "".join(text.splitlines(keepends=True)[:-2]),
            f"{OTHERS}journal.ndjson",
        ),
        ("journal.ndjson", lambda text: text[:-20], f"{OTHERS}journal.ndjson"),
        ("scenario.yaml", lambda text: text + "# a comment\n", f"{OTHERS}scenario.yaml"),
        ("scenario.yaml", lambda text: text[:-20], f"{OTHERS}scenario.yaml"),
        ("scenario.yaml", lambda text: "", f"{OTHERS}scenario.yaml"),
        ("report.html", lambda text: text.replace("held", "kept"), f"{OTHERS}report.html"),
        ("verdict.json", lambda text: text[:-20], "changed or cut short: verdict.json ("),
        (
            "verdict.json",
            lambda text: without_digests(text, "report.html"),
            f"{NO_DIGEST}report.html: it was",
        ),
        (
            "verdict.json",
            without_digests,
            f"{NO_DIGEST}verdict.json, scenario.yaml, report.html: it was edited, or",
        ),
        (
            "verdict.json",
            lambda text: without_digests(text, "verdict.json"),
            f"{NO_DIGEST}verdict.json: it was",
        ),
        (
            "verdict.json",
            lambda text: text.replace("journal_digest", "digest"),
            f"{NO_DIGEST}journal.ndjson: it was",
        ),
        (
            "verdict.json",
            lambda text: json.dumps(json.loads(text) | {"digests": ["?"]}),
            f"{NO_DIGEST}verdict.json",
        ),
        ("verdict.json", None, "verdict.json is missing: the run was interrupted, or"),
    ],
)
def test_a_file_that_is_not_as_its_run_wrote_it_is_named(
    recorded: Path, tmp_path: Path, name: str, edit: Callable[[str], str] | None, found: str
) -> None:
    one, other = recorded / "good" / "compared", tmp_path / "edited"
    shutil.copytree(one, other)
    (other / name).unlink()
    if edit is not None:
        (other / name).write_text(edit((one / name).read_text()))
    assert_named(one, other, found)


def assert_named(one: Path, other: Path, found: str) -> None:
    expected = f"{other}: {found}".replace(" ", "")
    for command in (["compare", str(one), str(other)], ["replay", str(other)]):
        result = CliRunner().invoke(app, command)
        text = "".join(result.output.split())  # lines are wrapped anywhere
        assert (result.exit_code, expected in text, "runthescenarioagain" in text) == (
            1,
            True,
            True,
        ), result.output


@pytest.mark.parametrize(
    ("taken", "found"),
    [
        (["journal.ndjson"], f"{OTHERS}journal.ndjson;"),
        (["verdict.json"], f"{OTHERS}journal.ndjson, scenario.yaml, report.html;"),
        (["verdict.json", "journal.ndjson"], f"{OTHERS}scenario.yaml, report.html;"),
    ],
)
def test_files_of_two_runs_in_one_folder_are_named(
    recorded: Path, tmp_path: Path, taken: list[str], found: str
) -> None:
    one, other = recorded / "good" / "compared", tmp_path / "mixed"
    shutil.copytree(recorded / "small" / "compared", other)
    for name in taken:
        shutil.copy(one / name, other)
    assert_named(one, other, found)


@pytest.mark.parametrize(
    "edit",
    [lambda text: text[: len(text) // 2], lambda text: f"<<<<<<< ours\n{text}>>>>>>> theirs\n"],
)
def test_a_verdict_that_is_cut_short_or_has_merge_conflicts_is_reported(
    recorded: Path, tmp_path: Path, edit: Callable[[str], str]
) -> None:
    one, other = recorded / "good" / "compared", tmp_path / "damaged"
    shutil.copytree(one, other)
    (other / "verdict.json").write_text(edit((one / "verdict.json").read_text()))
    for command in (["compare", str(one), str(other)], ["replay", str(other)]):
        result = CliRunner().invoke(app, command)
        text = "".join(result.output.split())
        assert (result.exit_code, "notawholeone" in text) == (1, True), result.output


def test_folders_are_compared_run_by_run(recorded: Path) -> None:
    code, text = compare(recorded / "good", recorded / "again", "--exact")
    assert (code, "the same journal" in text) == (0, True)
    code, text = compare(recorded / "small", recorded / "good")
    assert (code, "only in the first folder: added" in text) == (0, True)
    assert compare(recorded / "small", recorded / "good", "--exact")[0] == 1


def test_events_of_runs_in_real_time_are_not_compared(recorded: Path) -> None:
    code, text = compare(recorded / "good" / "compared", recorded / "real" / "compared")
    assert (code, "first event" in text) == (1, False)
    assert "a run in real time never repeats its events" in text
    assert "c0003: ok -> throttled" in text


def test_runs_of_different_scenarios_are_compared_with_a_warning(recorded: Path) -> None:
    code, text = compare(recorded / "good" / "compared", recorded / "small" / "added")
    assert code == 0
    assert "compared -> added: the same journal and the same verdicts" in text
    assert "runs of different scenarios" in text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("good/compared", "good", "not a run; compare two runs"),
        ("good", "nowhere", "not a run, and no runs below it"),
        ("nowhere", "nowhere", "not a run, and no runs below it"),
    ],
)
def test_wrong_folders_are_named(recorded: Path, before: str, after: str, words: str) -> None:
    code, text = compare(recorded / before, recorded / after)
    assert (code, words in text) == (2, True), text


def test_folders_without_a_common_run_cannot_be_compared(recorded: Path, tmp_path: Path) -> None:
    shutil.copytree(recorded / "small" / "added", tmp_path / "added")
    code, text = compare(tmp_path, recorded / "good")
    assert (code, "have no run of the same name" in text) == (2, True)
