"""Do we run in a container? There, 127.0.0.1 is the container itself and not the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc")
_MARKS = {".dockerenv": "/.dockerenv exists", "run/.containerenv": "/run/.containerenv exists"}


def in_container(root: Path, environ: Mapping[str, str]) -> str | None:
    """How one can tell that this is a container, None when nothing says so. ``root`` is where ``/`` is."""
    for mark, reason in _MARKS.items():
        if (root / mark).exists():
            return reason
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return "KUBERNETES_SERVICE_HOST is set"
    if environ.get("container"):
        return "the variable `container` is set"
    try:
        found = _CGROUP.search((root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return f"/proc/1/cgroup names {found[0]}" if found else None
