"""Puts the guard into bubblewrap's namespaces, where bubblewrap may make some and the guard may not.

That is so where a security module lets only known programs make namespaces, and for a root without capabilities. Then
all programs share one set of namespaces: they see each other, but no other process, and a read-only machine.
"""

from __future__ import annotations

import os
import sys

WRAPPED = "wrapped"
"""Stands in place of bubblewrap's path once the guard is inside."""


def command(bubblewrap: str, rooms: str) -> list[str]:
    """Return the command before a command to run: everything but the rooms is read-only."""
    view = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc", "--bind", rooms, rooms]
    shared = ["--tmpfs", "/dev/shm"] if os.path.isdir("/dev/shm") else []
    return [bubblewrap, *view, *shared, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--"]


def works(bubblewrap: str, rooms: str) -> bool:
    import subprocess  # with threading, which makes every fork of the guard twice as expensive

    try:
        tried = subprocess.run([*command(bubblewrap, rooms), "true"], capture_output=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def enter(bubblewrap: str, rooms: str) -> None:
    """Run this process again inside; never returns."""
    os.set_inheritable(0, True)
    os.set_inheritable(int(sys.argv[3]), True)  # the lock of the room
    again = [sys.executable, *sys.orig_argv[1:-1], WRAPPED]
    os.execv(bubblewrap, [*command(bubblewrap, rooms), *again])
