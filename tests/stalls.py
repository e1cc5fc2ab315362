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
    """Stop a process for a while, unless it is gone or the tests themselves have stopped it; if
    they do so meanwhile, it stays stopped."""
    with ExitStack() as stack:
        with suppress(OSError):  # it may end at any moment
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            if not is_stopped(pid):
                stack.callback(_continue, pid, handle)
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
        yield


def _continue(pid: int, handle: int) -> None:
    with suppress(OSError):
        if not (is_stopped(pid) and _has_stop_pending(pid)):
            signal.pidfd_send_signal(handle, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return stat.rpartition(")")[2].split()[0] in "Tt"


def _has_stop_pending(pid: int) -> bool:
    """Whether a stopped process was sent a second stop: the kernel keeps it, and only then."""
    status = Path(f"/proc/{pid}/status").read_text(errors="replace")
    [pending] = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending, 16) & 1 << signal.SIGSTOP - 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
