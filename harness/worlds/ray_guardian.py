"""Ends the processes of our own Ray cluster when the command that started it is killed; run as a script.

Ray ends its servers with their driver, but workers and agents that are just starting wait for a server that is gone. A
small process of its own waits on a pipe that closes when the command dies, however it dies. Linux only: it finds the
processes by a mark in their environment, which they inherit, and by the log of their raylet, which they have open:
the title that Ray gives to a process overwrites its environment.
"""

from __future__ import annotations

import os
import signal
import stat
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
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
        os.environ[_MARK] = mark

    def add_logs(self, beginning: str) -> None:
        """Guard also what writes to files whose path begins like this."""
        self._tell(os.fsencode(os.path.realpath(beginning)))

    def finish(self) -> None:
        """Stop guarding: the cluster was ended."""
        os.environ.pop(_MARK, None)
        self._tell(_FINISHED)
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, words: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(words + b"\0")


def guarded_processes(mark: str, logs: bytes) -> list[int]:
    """Return the processes that have the mark in their environment or write to one of the logs."""
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # another user's, or gone
            if wanted in (folder / "environ").read_bytes().split(b"\0") or (logs and _writes_to(logs, folder)):
                found.append(int(folder.name))
    return found


def _writes_to(logs: bytes, process: Path) -> bool:
    opened = [os.fsencode(file) for file in (process / "fd").iterdir()]
    return any(os.readlink(file).startswith(logs) and os.lstat(file).st_mode & stat.S_IWUSR for file in opened)


def main() -> None:
    """Wait for the end of the command, then end what it left."""
    told = sys.stdin.buffer.read().split(b"\0")[:-1]
    if told[-1:] == [_FINISHED]:
        return
    logs = told[0] if told else b""
    quiet = 0
    while quiet < _QUIET_ROUNDS:  # one that is being started has no environment of its own yet
        left = guarded_processes(sys.argv[1], logs)
        quiet = 0 if left else quiet + 1
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


if __name__ == "__main__":
    main()
