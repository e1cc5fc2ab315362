"""A command that started a Ray cluster of its own and is killed leaves no process of Ray behind."""

from __future__ import annotations

import subprocess
import sys

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
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        started = descendants(process.pid)
        watched = Watched(started)
        process.kill()
    assert len(started) > 3, "the guardian, the GCS, a raylet and its agents"
    assert watched.still_alive(150) == []
