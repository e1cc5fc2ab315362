"""Counts the processes, threads and memory of a program. Reads only /proc."""

from __future__ import annotations

import os
from collections.abc import Iterator

PAGE = os.sysconf("SC_PAGE_SIZE")


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:  # the process has ended
        return ""


def last_pid() -> int:
    """Return the last process id of this namespace: one small read shows whether anything was started."""
    fields = _read("/proc/loadavg").split()
    return int(fields[4]) if len(fields) > 4 else 0


def _numbers(path: str) -> Iterator[int]:
    try:
        names = os.listdir(path)
    except OSError:
        return
    for name in names:
        if name.isdigit():
            yield int(name)


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the command name, which may contain spaces and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def namespace_members() -> list[int]:
    """List every other live process that is visible; inside a namespace those are the program's."""
    me = os.getpid()
    return [pid for pid in _numbers("/proc") if pid != me and _alive(pid)]


def descendants() -> list[int]:
    """List every live descendant of this process, including adopted ones."""
    found: list[int] = []
    queue = [os.getpid()]
    if not os.path.exists(f"/proc/{queue[0]}/task/{queue[0]}/children"):
        return _descendants_by_parent()
    while queue:
        pid = queue.pop()
        for task in _numbers(f"/proc/{pid}/task"):
            below = [int(child) for child in _read(f"/proc/{pid}/task/{task}/children").split()]
            queue += below
            found += [child for child in below if _alive(child)]
    return found


def _descendants_by_parent() -> list[int]:
    """The same for kernels that do not list children: by the parent of every process."""
    children: dict[int, list[int]] = {}
    for pid in _numbers("/proc"):
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


def memory(pids: list[int], bound: int) -> int:
    """Sum the memory of these processes; exact only if the cheap sum, which repeats shared pages, is too high."""
    own = {pid: _own_memory(pid) for pid in pids}
    total = sum(own.values())
    return total if total <= bound else sum(_proportional(pid, own[pid]) for pid in pids)


def _own_memory(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return max(int(fields[1]) - int(fields[2]), 0) * PAGE if len(fields) > 2 else 0


def _proportional(pid: int, default: int) -> int:
    """Return the memory of a process, with shared pages divided among the processes that share them."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return default
