"""The tool that stops the processes of a command."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests import ROOT

WATCHES = """import select, subprocess, sys
reads = [sys.executable, "-c", "import sys; sys.stdin.read()"]
child = subprocess.Popen(reads, stdin=subprocess.PIPE)
seen = ""
while not ("T" in seen and seen.endswith("S")):
    select.select([], [], [], 0.01)
    seen += open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0]
child.communicate()
sys.exit(7)
"""

TERMINATES = """import os, select, signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tool = os.getppid()
reads = [sys.executable, "-c", "import sys; sys.stdin.read()"]
child = subprocess.Popen(reads, stdin=subprocess.PIPE)
def state():
    return open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()[0]
def wait_until(*states):
    while os.getppid() == tool and state() not in states:
        select.select([], [], [], 0.01)
wait_until("T")
os.kill(tool, signal.SIGTERM)
wait_until("R", "S")
child.kill()
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")


def test_processes_of_a_command_are_stopped_and_continued_and_its_exit_code_is_kept() -> None:
    command = [sys.executable, "-m", "tests.stalls", "1", sys.executable, "-c", WATCHES]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 7


def test_a_tool_that_is_terminated_leaves_no_process_stopped() -> None:
    command = [sys.executable, "-m", "tests.stalls", "1", sys.executable, "-c", TERMINATES]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 128 + signal.SIGTERM
