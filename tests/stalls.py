"""Runs a command and stops some of its processes again and again, for up to a second each time. For Linux.

    $ python -m tests.stalls 7 pytest -n 2 tests/fakes

A test that fails under it may depend on who runs first, or on a limit in seconds that a busy machine does not meet. The
first argument is a seed; it repeats the choices, not the moments.
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
    chance = Random(seed)
    with subprocess.Popen(command) as running:
        ended = os.pidfd_open(running.pid)
        while not select.select([ended], [], [], chance.uniform(0.01, 0.3))[0]:
            share = chance.choice(SHARES)
            with ExitStack() as stack:
                for pid in descendants(running.pid):
                    if chance.random() < share:
                        stack.enter_context(stopped(pid))
                select.select([ended], [], [], chance.choice(PAUSES))
        os.close(ended)
    return running.returncode


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stop a process for a while, unless it is gone or the tests themselves have stopped it."""
    with ExitStack() as stack:
        with suppress(OSError):  # it may end at any moment
            handle = os.pidfd_open(pid)
            stack.callback(os.close, handle)
            if Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "Tt":
                signal.pidfd_send_signal(handle, signal.SIGSTOP)
                stack.callback(_continue, handle)
        yield


def _continue(handle: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGCONT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
