"""The edge of the command line: whatever goes wrong is a line or two and an exit code, and never
code 1."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sfusion.harness.cli import app
from sfusion.harness.lab import scenarios
from tests.patience import PATIENCE
from tests.warm import warm


def invoke(*words: object) -> Any:
    return CliRunner().invoke(app, list(map(str, words)))


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (
            RuntimeError("boom \x1b[31m"),
            4,
            "a defect of sfusion: RuntimeError: boom \\x1b[31m (test_edge.py:",
        ),
        (RecursionError("deep"), 4, "a defect of sfusion: RecursionError: deep"),
        (MemoryError(), 4, "a defect of sfusion: MemoryError"),
        (
            OSError(28, "No space left on device", "/some/file"),
            3,
            "/some/file: No space left on device\n",
        ),
        (OSError(24, "Too many open files"), 3, "[Errno 24] Too many open files\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
    ids=lambda one: type(one).__name__ if isinstance(one, BaseException) else "",
)
def test_an_exception_is_a_line_and_a_code(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(scenarios, "scenario_files", broken)
    result = invoke("check")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_the_traceback_of_a_defect_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenarios, "scenario_files", lambda _: 1 / 0)
    monkeypatch.setenv("SFUSION_DEBUG", "1")
    result = invoke("check")
    assert result.exit_code == 4
    assert "Traceback (most recent call last)" in result.stderr


def test_a_usage_error_is_still_one_of_typer() -> None:
    result = invoke("check", "--no-such-option")
    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_a_message_that_quotes_a_file_cannot_control_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text('"\\e]0;owned\\a": 1\n')
    result = invoke("check", file)
    assert result.exit_code == 2
    assert "\x1b" not in result.stderr
    assert "owned" in result.stderr


def test_a_reader_that_goes_away_is_not_a_broken_promise() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [warm("sfusion"), "run", "single-node"]
    done = subprocess.run(
        command, stdout=writing, stderr=subprocess.PIPE, text=True, timeout=PATIENCE, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


BROKEN = """
scenario: unlimited
about: The limiter is off.
tools: {enable_global_rate_limit: false}
load: {calls: 3, concurrency: 3, program: {seconds: 1}}
promises: [{in_flight_within_limit: {limit: 1}}]
"""


def test_a_closed_stdout_does_not_change_the_exit_code(tmp_path: Path) -> None:
    (tmp_path / "off.yaml").write_text(BROKEN)
    command = [
        "sh",
        "-c",
        'exec "$@" >&-',
        "",
        sys.executable,
        "-m",
        "sfusion",
        "run",
        "off.yaml",
        "--out",
        "runs",
    ]
    done = subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (1, b"")
    assert (tmp_path / "runs/unlimited/verdict.json").exists()


def test_a_folder_that_is_read_only_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Root may write wherever permissions forbid it, but not to a file system that is mounted
    read-only."""
    command = [sys.executable, "-m", "sfusion", "run", "single-node", "--out", str(tmp_path)]
    why = "Permission denied"
    if os.geteuid() == 0:
        if subprocess.run(
            ["unshare", "--mount", "true"], capture_output=True, check=False
        ).returncode:
            pytest.skip("root may write anywhere, and this machine offers no mounts")
        mount = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
        command, why = (
            ["unshare", "--mount", "sh", "-c", mount, str(tmp_path), *command],
            "Read-only file system",
        )
    else:
        tmp_path.chmod(0o555)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stderr) == (2, f"--out {tmp_path}: cannot be written: {why}\n")
    assert done.stdout == ""


@pytest.mark.parametrize(
    "command", ["run single-node --html", "run single-node --junit", "compare a b --html"]
)
def test_a_report_is_not_written_to_a_file_that_is_called_like_stdout(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(*command.split(), "-")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert (
        result.stderr == f"{command.split()[-1]} -: this report cannot go to stdout; give a file\n"
    )


@pytest.mark.parametrize("option", ["--out", "--junit", "--html", "--json", "--summary"])
def test_a_place_where_nothing_can_be_written_is_refused_before_anything_runs(option: str) -> None:
    result = invoke("run", "single-node", option, "/proc/nowhere/file")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"{option} /proc/nowhere/file: cannot be written: No such file or directory\n"
    )


@pytest.mark.parametrize(
    "class_name", ["no_such_module.Tool", "json.nothing", "sfusion_tools.base_tool.Nothing"]
)
def test_a_tool_module_that_is_missing_is_wrong_input(class_name: str, tmp_path: Path) -> None:
    tools = tmp_path / "tools.yaml"
    tools.write_text(f"tools: [{{class_name: {class_name}, config: {{}}}}]\n")
    result = invoke("run", "single-node", "--tools", tools)
    assert (result.exit_code, result.stdout) == (2, "")
    assert class_name in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "header", ["Content-Length: 5", "transfer-encoding: chunked", "a b: c", "X: \x00", ": x", "x"]
)
def test_an_odd_header_is_wrong_input(header: str) -> None:
    result = invoke("drift", "http://127.0.0.1:9", "--header", header)
    assert result.exit_code == 2
    assert result.stderr.startswith("--header ")


def test_a_run_that_cannot_be_played_is_not_a_broken_promise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from sfusion.harness.lab.worlds import sim

    def full(_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sim, "run", full)
    result = invoke("run", "single-node", "--jobs", "1")
    assert result.exit_code == 3
    assert "No space left on device" in result.stdout
