"""``sfusion learn``: what it prints and writes, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.studies.learn import command
from sfusion.harness.studies.learn.check import Checked
from sfusion_tools.outcome import Outcome
from tests.harness.studies.learn.records import call, write_log


def sfusion(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    return done.exit_code, done.stdout, done.stderr


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A third of the requests gets a 502 at once, all the time; nobody tries again."""
    facts = {"outcome": "sandbox_error", "status": 502}
    calls = [
        call(n, 1e9 + 0.1 * n, **(facts | {"seconds": 0.001} if n % 3 == 0 else {}))
        for n in range(120)
    ]  # type: ignore[arg-type]
    return write_log(tmp_path / "events.ndjson", calls)


def test_the_scenario_goes_to_stdout_and_the_findings_to_stderr(log: Path, tmp_path: Path) -> None:
    code, text, told = sfusion("learn", log)
    assert code == 0, told
    assert "main cause: bad gateway (502): 33.33% of the requests" in told
    assert "behaves like the log" in told
    file = tmp_path / "again.yaml"
    file.write_text(text)
    assert sfusion("check", file)[0] == 0
    assert "40 of 120 requests" in text


def test_a_dash_is_stdout(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text, told = sfusion("learn", log, "--to", "-", "--no-check")
    assert (code, text[:2], list(tmp_path.glob("-*"))) == (0, "# ", []), told


def test_a_file_is_written_once_and_replaced_only_by_force(log: Path, tmp_path: Path) -> None:
    file = tmp_path / "Friday night.yaml"
    code, told, _ = sfusion("learn", log, log, "--to", file, "--no-check")
    assert code == 0, told
    assert f"{log}: the same file as {log}, read once\n120 calls in" in told
    assert "scenario: friday-night\n" in file.read_text()
    file.write_text("precious")
    code, _, told = sfusion("learn", log, "--to", file, "--no-check")
    assert (code, file.read_text()) == (2, "precious")
    assert "--force" in told
    assert sfusion("learn", log, "--to", file, "--force", "--no-check")[0] == 0
    assert "scenario: friday-night\n" in file.read_text()


def test_a_long_log_is_learned_from_where_it_has_most_trouble(tmp_path: Path) -> None:
    calls = [call(n, 1e9 + n) for n in range(3000)]
    calls[2000:2050] = [
        call(n, 1e9 + n, 0.01, outcome="unreachable", status=None) for n in range(2000, 2050)
    ]
    code, told, _ = sfusion(
        "learn",
        write_log(tmp_path / "e.ndjson", calls),
        "--calls",
        300,
        "--to",
        tmp_path / "s.yaml",
        "--no-check",
    )
    assert code == 0
    assert "of 3,000 calls, the stretch of" in told
    assert "main cause: crash: down for" in told
    assert "50 of 50 calls that failed or were retried" in told


def test_nothing_is_said_about_calls_that_were_not_examined(tmp_path: Path) -> None:
    log = write_log(tmp_path / "e.ndjson", [call(n, 1e9 + n) for n in range(600)])
    code, told, _ = sfusion("learn", log, "--calls", 300, "--to", tmp_path / "s.yaml", "--no-check")
    assert code == 0
    assert "nothing went wrong in the 300 of 600 calls that were examined" in told


def test_failures_of_which_the_log_does_not_show_the_cause_are_told(tmp_path: Path) -> None:
    """As in a dump of verl's, which has calls, but no requests."""
    calls = [call(n, 1e9 + n) for n in range(60)]
    calls[::2] = [
        replace(each, outcome=Outcome.THROTTLED, attempts=[], seconds=None) for each in calls[::2]
    ]
    file = tmp_path / "s.yaml"
    log = write_log(tmp_path / "e.ndjson", calls)
    told = sfusion("learn", log, "--to", file, "--no-check")[1]
    said = "50% of the calls failed, mostly with throttled; the log does not show why"
    assert said in told
    assert said in " ".join(file.read_text().split())
    assert "nothing went wrong" not in told


def test_causes_with_different_names_are_not_the_same(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checked(found: str, *, is_rare: bool) -> str:
        result = Checked((), None, is_rare, found, held=True, broken=(), is_rare=is_rare)
        monkeypatch.setattr(command, "check", lambda *_: result)
        told = sfusion("learn", log, "--to", tmp_path / "x.yaml", "--force")[1]
        return next(line for line in told.splitlines() if line.startswith("main cause  "))

    assert checked("wedge", is_rare=False).split()[-3:] == ["the", "same", "OUT"]
    assert checked("wedge", is_rare=True).endswith("any: it is rare")


def test_input_that_cannot_be_used_is_refused(log: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.ndjson"
    empty.write_text("")
    for arguments in (
        ["learn", empty],
        ["learn", tmp_path / "nowhere"],
        ["learn", log, "--to", tmp_path],
        ["learn", log, "--to", tmp_path / "no" / "folder.yaml"],
    ):
        code, text, told = sfusion(*arguments)
        assert (code, text) == (2, ""), told
        assert told.strip()


def test_lines_that_cannot_be_read_are_counted_and_left_out(log: Path, tmp_path: Path) -> None:
    with log.open("a") as file:
        file.write('{"event_log": 1, "began": "yesterday"}\n{"event_log": 1, "be\n')
    code, told, _ = sfusion("learn", log, "--to", tmp_path / "s.yaml", "--no-check")
    assert code == 0
    assert f"2 lines cannot be read; the first: {log}:121: began must be a number" in told
    assert "120 calls in" in told


def test_a_scenario_that_does_not_behave_like_its_log_is_said_to(tmp_path: Path) -> None:
    """Calls that waited for a minute in vain, although nothing says for what."""
    calls = [call(n, 1e9 + n, 0.1) for n in range(60)]
    calls += [
        call(100 + n, 1e9 + n, None if n % 2 else 60.0, outcome="throttled", status=None)
        for n in range(60)
    ]
    code, told, _ = sfusion(
        "learn", write_log(tmp_path / "e.ndjson", calls), "--to", tmp_path / "s.yaml"
    )
    assert code == 1, told
    assert "does NOT behave like the log" in told
    assert "`sfusion sweep` recommends nothing from it" in told
    code, swept, _ = sfusion(
        "sweep", tmp_path / "s.yaml", "--vary", "tools.rate_limit=1,2", "--seeds", "1"
    )
    assert code == 1, swept
    assert swept.rstrip().splitlines()[-1].startswith("tools.rate_limit: cannot tell"), swept
    assert "the scenario does not behave like its log (" in swept
    (tells,) = re.findall(r"tells only about (\d+)", swept)
    (tried,) = re.findall(r"to find out, run \d+ minutes? with rate_limit (\d+) ", swept)
    assert 0.7 * int(tells) < int(tried) < int(tells) or int(tells) <= 3, swept


@pytest.mark.parametrize("count", [1, 4, 19])
def test_a_few_calls_are_too_few_to_judge(count: int, tmp_path: Path) -> None:
    log = write_log(tmp_path / "e.ndjson", [call(n, 1e9 + n) for n in range(count)])
    code, told, _ = sfusion("learn", log, "--to", tmp_path / "s.yaml")
    assert code == 1, told
    assert "too few calls to name a cause" in told
    assert "too few to judge whether the scenario behaves like the log; 20 are needed" in told
    assert "virtual time" not in told
    assert "nothing went wrong" not in told
    assert "Too few calls to judge it by." in (tmp_path / "s.yaml").read_text()
