"""A command that started a Ray cluster of its own and is killed leaves no process of Ray behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ray.processes import Watched, descendants

pytestmark = [pytest.mark.ray, pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc")]

COMMAND = """\
import sys, time
from sfusion.harness.worlds.ray_cluster import open_cluster
cluster = open_cluster()
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(300)
def test_no_process_of_ray_outlives_the_command_that_started_it() -> None:
    # First in the environment, the guardian's mark is overwritten by the titles of Ray's processes.
    environ = {"SFUSION_RAY_CLUSTER": "", **os.environ}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], env=environ, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        started = descendants(process.pid)
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in started}
        guardian = [pid for pid, command in commands.items() if b"ray_guardian" in command]
        last, others = Watched(guardian), Watched(started)
        process.kill()
    assert len(guardian) == 1
    assert not [command for command in commands.values() if b"dashboard.py" in command], "nobody looks at it"
    assert len(started) > 3, "the guardian, the GCS, a raylet and its agents"
    assert last.still_alive(150) == []
    assert others.still_alive(10) == [], "without it, Ray's agents wait a minute for a server that is gone"
