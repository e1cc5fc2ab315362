"""Ctrl-C in a terminal reaches the command and all processes that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def test_ctrl_c_prints_one_line() -> None:
    command = [sys.executable, "-m", "sfusion", "run", "--jobs", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, process_group=0) as process:
        assert process.stdout is not None
        first = process.stdout.readline()  # the processes have begun, and have much to do
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert first.startswith("[")
    assert (process.returncode, errors.splitlines()[-1:]) == (130, ["interrupted"])
    assert "Traceback" not in errors
