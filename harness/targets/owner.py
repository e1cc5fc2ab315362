"""Whose container is it, and does that process still live?

Every container carries a label that names the process which started it. A process number alone is not enough: numbers
are given again, so the time it was started stands beside it, and the boot, process namespace and machine in which the
number means anything.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

LABEL = "sfusion.owner"
"""The label of every container that sfusion starts; nothing without it is ever touched."""


def start_of(pid: int) -> str | None:
    """When a living process began, in the system's own words; None when there is none (a zombie is none)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _start_by_ps(pid)
    except ProcessLookupError:
        return None
    state, *fields = stat.rpartition(")")[2].split()  # the name before it may hold anything, also spaces
    return None if state in ("Z", "X") else fields[18]


def _start_by_ps(pid: int) -> str | None:
    """The same on systems without /proc."""
    told = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, when = told.stdout.strip().partition(" ")
    return when.strip() if when and not state.startswith("Z") else None


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


@dataclass(frozen=True)
class Owner:
    """A process, told from every other one that ever was."""

    pid: int
    started: str
    """When it began, as the system counts it."""
    boot: str
    namespace: str
    host: str

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(
            pid=pid,
            started=start_of(pid) or "",
            boot=_text("/proc/sys/kernel/random/boot_id"),
            namespace=_link("/proc/self/ns/pid"),
            host=f"{platform.node()} {_text('/etc/machine-id')}".strip(),
        )

    def label(self) -> str:
        """The value of the label."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, label: str) -> Owner | None:
        """The owner that a label names; None when it cannot be read."""
        try:
            data = json.loads(label)
            owner = cls(**data)
        except (TypeError, ValueError):
            return None
        texts = (owner.started, owner.boot, owner.namespace, owner.host)
        return owner if type(owner.pid) is int and all(isinstance(text, str) for text in texts) else None

    def is_alive(self, here: Owner, *, running: bool, start_of: Callable[[int], str | None] = start_of) -> bool | None:
        """Does this process still live, as seen from another one? None when that cannot be told from there.

        ``running`` is the state of its container: of those from before this machine's last boot none runs any more.
        """
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            return None if running else False
        if self.namespace != here.namespace:
            return None
        return start_of(self.pid) == self.started
