"""Runs a command and stops some of its processes again and again, for up to a second each time. For
Linux.

    $ python -m tests.stalls 7 pytest -n 2 tests/fakes

A test that fails under it may depend on who runs first, or on a limit in seconds that a busy
machine does not meet. The first argument is a seed; it repeats the choices, not the moments.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from random import Random

from tests.ray.processes import descendants

PAUSES = (0.05, 0.1, 0.3, 1.0)
"""Seconds for which processes are stopped."""
SHARES = (0.2, 0.6)
"""How many of the processes are stopped at a time."""


def main(seed: str, *command: str) -> int:
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # and leave no process stopped
    with subprocess.Popen(command) as running:
        try:
            stall(running.pid, Random(seed))
        except SystemExit:
            running.terminate()
            raise
    return running.returncode


def stall(command: int, chance: Random) -> None:
    ended = os.pidfd_open(command)
    while not select.select([ended], [], [], chance.uniform(0.01, 0.3))[0]:
        share = chance.choice(SHARES)
        with ExitStack() as stack:
            for pid in descendants(command):
                if chance.random() < share:
                    stack.enter_context(stopped(pid))
            select.select([ended], [], [], chance.choice(PAUSES))
    os.close(ended)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for a while, unless it is gone or the tests themselves have stopped it."""
    with ExitStack() as stack:
        with suppress(OSError):  # it may end at any moment
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            if (
                Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
                not in "Tt"
            ):
                stack.callback(_continue, handle)
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
        yield


def _continue(handle: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
