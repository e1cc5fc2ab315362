"""Puts the guard into bubblewrap's namespaces, where bubblewrap may make some and the guard may
not.

That is so where a security module lets only known programs make namespaces, and for a root without
capabilities. Then all programs share one set of namespaces: they see each other, but no other
process, and a read-only machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from .spec import GuardOptions


def command(bubblewrap: str, writable: Sequence[str], *, network: bool) -> list[str]:
    """Return the command before a command to run: everything but the writable directories is
    read-only."""
    view = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for path in writable:
        view += ["--bind", path, path]
    shared = ["--tmpfs", "/dev/shm"] if os.path.isdir("/dev/shm") else []
    own = [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        *([] if network else ["--unshare-net"]),
    ]
    return [bubblewrap, *view, *shared, *own, "--"]


def works(bubblewrap: str, writable: Sequence[str], *, network: bool) -> bool:
    import subprocess  # with threading, which makes every fork of the guard twice as expensive

    trial = [*command(bubblewrap, writable, network=network), "true"]
    try:
        return subprocess.run(trial, capture_output=True, check=False, timeout=10).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def enter(options: GuardOptions, writable: Sequence[str]) -> None:
    """Run this process again inside; never returns."""
    for descriptor in (0, options.lock):
        os.set_inheritable(descriptor, True)
    again = [sys.executable, *sys.orig_argv[1:-1], replace(options, wrapped=True).to_json()]
    os.execv(
        options.bubblewrap,
        [*command(options.bubblewrap, writable, network=options.network), *again],
    )
