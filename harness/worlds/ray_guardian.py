"""Ends the processes of our own Ray cluster when the command that started it is killed; run as a script.

Ray ends its servers with their driver, but workers and agents that are just starting wait for a server that is gone. A
small process of its own waits on a pipe that closes when the command dies, however it dies. Linux only: it finds the
processes by a mark in their environment, which they inherit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

_MARK = "SFUSION_RAY_CLUSTER"
_FINISHED = b"."
_PAUSE = 0.2
_QUIET_ROUNDS = 5


class RayGuardian:
    """Guards the processes that are started between its making and ``finish``."""

    def __init__(self) -> None:
        mark = uuid.uuid4().hex
        # In a session of its own: Ctrl-C is for the command, which then ends the cluster itself.
        command = [sys.executable, "-I", __file__, mark]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        os.environ[_MARK] = mark

    def finish(self) -> None:
        """Stop guarding: the cluster was ended."""
        os.environ.pop(_MARK, None)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(_FINISHED)
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


def marked_processes(mark: str) -> list[int]:
    """Return the processes that have the mark in their environment."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def main() -> None:
    """Wait for the end of the command, then end what it left."""
    if sys.stdin.buffer.read():
        return
    quiet = 0
    while quiet < _QUIET_ROUNDS:  # one that is being started has no environment of its own yet
        left = marked_processes(sys.argv[1])
        quiet = 0 if left else quiet + 1
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
