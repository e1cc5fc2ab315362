"""Ends the processes of our own Ray cluster when the command that started it is killed; run as a
script.

Ray ends its servers with their driver, but workers and agents that are just starting wait for a
server that is gone. A small process of its own waits on a pipe that closes when the command dies,
however it dies. Linux only: it finds the processes by a mark in their environment, which they
inherit, and by the log of their raylet, which they have open: the title that Ray gives to a process
overwrites its environment.
"""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

_MARK = "SFUSION_RAY_CLUSTER"
_FINISHED = b"."
_PAUSE = 0.2
"""Seconds between two looks; chosen."""
_QUIET_ROUNDS = 5
"""Looks without a process of the session after which none is being started any more; chosen: a
second."""


class RayGuardian:
    """Guards the processes of a Ray session, which are started between its making and
    ``finish``."""

    def __init__(self) -> None:
        self.session = f"session_{datetime.now():%Y-%m-%d_%H-%M-%S_%f}_{os.getpid()}"
        """The name that the session must have; Ray would choose one of this form."""
        # In a session of its own: Ctrl-C is for the command, which then ends the cluster itself.
        command = [sys.executable, "-I", __file__, self.session]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True
        )
        os.environ[_MARK] = self.session

    def finish(self) -> None:
        """Stop guarding: the cluster was ended."""
        os.environ.pop(_MARK, None)
        with suppress(OSError):
            self._process.communicate(_FINISHED)


def guarded_processes(session: str) -> list[int]:
    """Return the processes that have the session in their environment or write to its raylets'
    logs."""
    mark = f"{_MARK}={session}".encode()
    logs = f"/{session}/logs/raylet.".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone
            environment = (folder / "environ").read_bytes().split(b"\0")
            if mark in environment or _writes_to(logs, folder):
                found.append(int(folder.name))
    return found


def _writes_to(logs: bytes, process: Path) -> bool:
    opened = [os.fsencode(file) for file in (process / "fd").iterdir()]
    return any(
        logs in os.readlink(file) and os.lstat(file).st_mode & stat.S_IWUSR for file in opened
    )


def main() -> None:
    """Wait for the end of the command, then end what it left."""
    if sys.stdin.buffer.read() == _FINISHED:
        return
    quiet = 0
    while quiet < _QUIET_ROUNDS:  # one that is being started has no environment of its own yet
        left = guarded_processes(sys.argv[1])
        quiet = 0 if left else quiet + 1
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
