"""Puts the guard into bubblewrap's namespaces, where only bubblewrap may make some.

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
    """Return what stands before a command to run it confined.

    Everything but the writable directories is read-only.
    """
    view = ["--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    for path in writable:
        view += ["--bind", path, path]
    if os.path.isdir("/dev/shm"):
        view += ["--tmpfs", "/dev/shm"]
    own = ["--unshare-user", "--unshare-pid", "--unshare-ipc"]
    if not network:
        own.append("--unshare-net")
    return [bubblewrap, *view, *own, "--"]


_PATIENCE = 10
"""Seconds for a trial of bubblewrap (chosen: it takes milliseconds on an idle machine)."""


def works(bubblewrap: str, writable: Sequence[str], *, network: bool) -> bool:
    import subprocess  # with threading, which makes every fork of the guard twice as expensive

    trial = [*command(bubblewrap, writable, network=network), "true"]
    try:
        tried = subprocess.run(trial, capture_output=True, check=False, timeout=_PATIENCE)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def enter(options: GuardOptions, writable: Sequence[str]) -> None:
    """Run this process again inside; never returns."""
    for descriptor in (0, options.lock):
        os.set_inheritable(descriptor, True)
    wrapped = replace(options, wrapped=True)
    again = [sys.executable, *sys.orig_argv[1:-1], wrapped.to_json()]
    before = command(options.bubblewrap, writable, network=options.network)
    os.execv(options.bubblewrap, [*before, *again])
