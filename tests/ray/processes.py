"""Processes of this machine, for tests that kill some and wait for others to end."""

from __future__ import annotations

import os
import select
from contextlib import ExitStack, suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Return the children of a process, theirs, and so on."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(folder.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def commands(pids: list[int]) -> dict[int, str]:
    """Return the command lines of those processes that are still there."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            found[pid] = (
                Path(f"/proc/{pid}/cmdline")
                .read_text(encoding="utf-8", errors="replace")
                .replace("\0", " ")
            )
    return found


class Watched:
    """Processes whose end is waited for; a pid that is used again is not mistaken for one of
    them."""

    def __init__(self, pids: list[int]) -> None:
        self._stack = ExitStack()
        self._open: dict[int, int] = {}
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            self._stack.callback(os.close, handle)
            self._open[handle] = pid

    def still_alive(self, seconds: float) -> list[int]:
        """Wait until all of them ended, at most this long, and return those that did not."""
        poll = select.poll()
        for handle in self._open:
            poll.register(handle, select.POLLIN)
        left = dict(self._open)
        while left and (ended := poll.poll(seconds * 1000)):
            for handle, _ in ended:
                poll.unregister(handle)
                del left[handle]
        self._stack.close()
        return list(left.values())
