"""A command that started a Ray cluster of its own and is killed leaves no process of Ray behind."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.ray.processes import Watched, commands, descendants

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes in /proc"),
]

COMMAND = """\
import os, subprocess, sys, tempfile
import ray
from sfusion.harness.lab.worlds.ray_cluster import open_cluster

def started(**_):
    logs = os.path.join(tempfile.gettempdir(), "ray", os.environ["SFUSION_RAY_CLUSTER"], "logs")
    with open(f"{logs}/raylet.out", "a") as log:
        pause = [sys.executable, "-c", "import signal; signal.pause()"]
        subprocess.Popen(pause, env={}, stdout=log)
    print("started", flush=True)
    sys.stdin.read()

ray.init = started
open_cluster()
"""
"""It starts a cluster and, like a raylet, a process that writes to its log. The titles that Ray
gives to its agents overwrite their environment, so this one has none at all."""


@pytest.mark.timeout(300)
def test_no_process_of_ray_outlives_the_command_that_was_starting_it() -> None:
    environ = {name: value for name, value in os.environ.items() if name != "RAY_TMPDIR"}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND],
        env=environ,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        started = descendants(process.pid)
        running = commands(started)
        guardian = [pid for pid, command in running.items() if "ray_guardian" in command]
        last, others = Watched(guardian), Watched(started)
        process.kill()
    assert len(guardian) == 1
    assert not [command for command in running.values() if "dashboard.py" in command], (
        "nobody looks at it"
    )
    assert len(running) > 4, (
        "the guardian, the GCS, a raylet and its agents, the process that writes to its log"
    )
    assert last.still_alive(150) == []
    assert others.still_alive(10) == []
