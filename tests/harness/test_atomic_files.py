"""Files of a command are complete or absent, and what cannot be written is one line with exit code
3 or 2."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sfusion.harness.atomic_files import check_writable, write_file
from sfusion.harness.cli import app
from sfusion.harness.errors import CannotWrite
from tests.patience import PATIENCE
from tests.warm import warm

SCENARIO = """\
scenario: small
about: A small one.
load: {calls: 20, program: {prints: "{call} {fill:300}"}}
promises: [every_call_ends_once]
"""


def test_a_file_is_written_completely_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")

    def parts() -> object:
        yield "new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(path, parts())  # type: ignore[arg-type]
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(CannotWrite, match=r"a\.txt cannot be written: full"):
        write_file(path, "new")
    assert (path.read_text(), os.listdir(tmp_path)) == ("old", ["a.txt"])


def test_a_link_is_followed_a_pipe_is_written_and_a_long_name_is_possible(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    write_file(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "text"
    reading, writing = os.pipe()
    write_file(Path(f"/dev/fd/{writing}"), ["to a ", "pipe"])
    assert os.read(reading, 100) == b"to a pipe"
    write_file(tmp_path / ("x" * 255), "text")
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "mine", "text")
    finally:
        os.umask(mask)
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o640


def test_the_check_before_a_run_leaves_no_file(tmp_path: Path) -> None:
    check_writable(tmp_path / "junit.xml")
    assert not os.listdir(tmp_path)
    with pytest.raises(OSError, match="No such file"):
        check_writable(tmp_path / "missing" / "junit.xml")


def _sfusion(*words: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sfusion", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **options)  # type: ignore[call-overload,no-any-return]


def _small_files() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))


def test_a_full_disk_is_one_line_and_keeps_the_last_good_files(tmp_path: Path) -> None:
    scenario, junit = tmp_path / "small.yaml", tmp_path / "junit.xml"
    scenario.write_text(SCENARIO)
    junit.write_text("the last good one")
    full = _sfusion(
        "run", scenario, "--out", tmp_path / "runs", "--junit", junit, preexec_fn=_small_files
    )
    journal = tmp_path / "runs" / "small" / "journal.ndjson"
    assert (full.returncode, full.stderr) == (3, f"{journal} cannot be written: File too large\n")
    assert os.listdir(tmp_path / "runs" / "small") == ["scenario.yaml"]
    assert junit.read_text() == "the last good one"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_to_a_full_device_is_not_a_broken_promise() -> None:
    file = CliRunner().invoke(app, ["run", "single-node", "--jobs", "1", "--json", "/dev/full"])
    assert (file.exit_code, file.stderr) == (
        3,
        "/dev/full cannot be written: No space left on device\n",
    )
    with Path("/dev/full").open("w") as full:
        printed = subprocess.run(
            [warm("sfusion"), "list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
    assert (printed.returncode, printed.stderr) == (3, "[Errno 28] No space left on device\n")


def test_no_command_writes_a_file_in_any_other_way() -> None:
    pages = {"tables.py"}  # they update the pages of this repository
    sources = [
        path
        for path in (Path(__file__).parents[2] / "harness").rglob("*.py")
        if path.name not in pages
    ]
    assert [
        path.name for path in sources if ".write_text(" in path.read_text(encoding="utf-8")
    ] == []
