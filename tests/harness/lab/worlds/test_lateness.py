"""How late this process comes, measured on a real one that is stopped."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

WATCHED = """
import sys, threading
from sfusion.harness.lab.worlds.lateness import Lateness

stopped = threading.Event()
lateness = Lateness()

def note(seconds):
    print(seconds, flush=True)
    if seconds > 0.3:
        stopped.set()

lateness.on_stop = note
with lateness:
    print("watching", flush=True)
    assert stopped.wait(300), "no stop was noted"
"""
PAUSE = 0.5


def test_a_stop_of_the_process_is_noted_with_its_length() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WATCHED], stdout=subprocess.PIPE, text=True
    ) as watched:
        assert watched.stdout is not None
        assert watched.stdout.readline() == "watching\n"
        os.kill(watched.pid, signal.SIGSTOP)
        select.select([], [], [], PAUSE)  # it is stopped for at least so long
        os.kill(watched.pid, signal.SIGCONT)
        noted = [float(line) for line in watched.stdout]
    assert watched.returncode == 0
    assert max(noted) > 0.3
