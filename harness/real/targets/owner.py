"""Which process owns a container, and is that process still alive?

Every container has a label that names the process which started it. A pid alone is not enough, as
pids are reused: the label also holds the start time of the process, and the boot, pid namespace and
machine in which the pid is valid.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sfusion_tools.hosts import start_of

LABEL = "sfusion.owner"
"""The label of every container that sfusion starts; containers without it are never touched."""


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
    """The identity of a process, unique across machines and boots."""

    pid: int
    started: str
    """When it began, as the system counts it."""
    boot: str
    namespace: str
    host: str

    @classmethod
    def here(cls) -> Owner:
        pid = os.getpid()
        return cls(
            pid=pid,
            started=start_of(pid) or "",
            boot=_text("/proc/sys/kernel/random/boot_id"),
            namespace=_link("/proc/self/ns/pid"),
            host=f"{platform.node()} {_text('/etc/machine-id')}".strip(),
        )

    def label(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def read(cls, label: str) -> Owner | None:
        """Parse a label; None if it cannot be read."""
        try:
            return TypeAdapter(cls).validate_json(label, strict=True)
        except ValidationError:
            return None

    def is_alive(self, here: Owner, *, running: bool) -> bool | None:
        """Is the owner still alive, as seen from ``here``? None if that cannot be determined from
        there.

        ``running`` is the state of its container: none from before the last boot of this machine is
        still running.
        """
        if self.host != here.host:
            return None
        if self.boot != here.boot:
            return None if running else False
        if self.namespace != here.namespace:
            return None
        return start_of(self.pid) == self.started
