"""Ctrl-C in a terminal reaches the command and all processes that it started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE


def test_ctrl_c_while_the_command_is_imported_shows_no_traceback() -> None:
    # As the script of the package does; enum is the first module of any size.
    program = (
        "import os, sys\n"
        "ctrl_c = lambda event, args: event == 'import' and args[0] == 'enum' and "
        "os.kill(os.getpid(), 2)\n"
        "sys.argv = ['sfusion', 'run', '-k', 'none of them']\n"
        "sys.addaudithook(ctrl_c)\n"
        "from sfusion.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_prints_one_line_that_says_what_was_kept(tmp_path: Path) -> None:
    out, junit = tmp_path / "runs", tmp_path / "junit.xml"
    junit.write_text("the last good one")
    options = [
        "-v",
        "--jobs",
        "2",
        "--out",
        str(out),
        "--junit",
        str(junit),
        "--html",
        str(tmp_path / "index.html"),
    ]
    command = [sys.executable, "-m", "sfusion", "run", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # the processes have begun, and have much to do
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert first.startswith("[")
    assert "Traceback" not in errors
    pattern = (
        rf"interrupted: (\d+) of \d+ runs ended, and what they wrote is in {out}; "
        "--html, --junit not written"
    )
    said = re.fullmatch(pattern, errors.splitlines()[-1])
    assert said is not None
    assert process.returncode == 130
    assert int(said[1]) <= len(list(out.glob("*/verdict.json"))) <= int(said[1]) + 2
    assert sorted(os.listdir(tmp_path)) == ["junit.xml", "runs"]
    assert junit.read_text() == "the last good one"
