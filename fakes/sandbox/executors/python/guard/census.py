"""Counts the processes and threads of a program. Reads only /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Protocol

INIT = 1
"""The first process of a namespace, which is not the program's."""


def read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the process has ended
        return ""


def numbers(path: str) -> Iterator[int]:
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        if name.isdigit():
            yield int(name)


class Census(Protocol):
    """Lists the processes of one program."""

    def members(self) -> list[int]:
        """List its live processes."""

    def may_exceed(self, limit: int) -> bool:
        """Find out with little work whether there could now be more processes, or threads, than that."""


class NamespaceCensus:
    """For a program with a namespace of its own, whose /proc is mounted here."""

    def members(self) -> list[int]:
        return [pid for pid in numbers("/proc") if pid != INIT and _alive(pid)]

    def may_exceed(self, limit: int) -> bool:
        pids = list(numbers("/proc"))
        return len(pids) > limit or tasks(pids) > limit


class DescendantCensus:
    """For a program whose orphans this process adopts."""

    def __init__(self) -> None:
        self._seen_pid = -1

    def members(self) -> list[int]:
        found: list[int] = []
        queue = [os.getpid()]
        if not os.path.exists(f"/proc/{queue[0]}/task/{queue[0]}/children"):
            return _descendants_by_parent()
        while queue:
            pid = queue.pop()
            for task in numbers(f"/proc/{pid}/task"):
                below = [int(child) for child in read(f"/proc/{pid}/task/{task}/children").split()]
                queue += below
                found += [child for child in below if _alive(child)]
        return found

    def may_exceed(self, limit: int) -> bool:
        fields = read("/proc/loadavg").split()
        newest = int(fields[4]) if len(fields) > 4 else 0  # the last process id that was given
        started_something = newest != self._seen_pid
        self._seen_pid = newest
        return started_something


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command name, which may contain spaces and brackets."""
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def _descendants_by_parent() -> list[int]:
    """For kernels that do not list children: by the parent of every process."""
    children: dict[int, list[int]] = {}
    for pid in numbers("/proc"):
        fields = _stat(pid)
        if len(fields) > 1:
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    queue = [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        queue += below
        found += [pid for pid in below if _alive(pid)]
    return found


def _alive(pid: int) -> bool:
    fields = _stat(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def tasks(pids: list[int]) -> int:
    """Count threads: the link count of a task directory is the number of threads plus two."""
    total = 0
    for pid in pids:
        try:
            total += max(os.stat(f"/proc/{pid}/task").st_nlink - 2, 0)
        except OSError:
            continue
    return total
