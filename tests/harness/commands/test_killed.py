"""A command that is killed leaves no processes behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.processes import Watched, descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")


def test_the_processes_of_a_command_end_when_it_is_killed() -> None:
    words = [sys.executable, "-m", "sfusion", "run", "--jobs", "2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline()  # the processes have begun, and have much to do
        started = descendants(process.pid)
        watched = Watched(started)
        process.kill()
    assert len(started) >= 2
    assert watched.still_alive(60) == []
