"""What /proc tells about the processes of a program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress


def numbers(path: str) -> Iterator[int]:
    """Yield the names in a directory of /proc that are numbers: processes, or threads."""
    try:
        names = os.listdir(path)
    except OSError:  # the process has ended
        return
    yield from map(int, filter(str.isdigit, names))


def read(path: str, folder: int | None = None) -> str:
    """Return the text of a file, whose path may begin at an open folder; empty if there is none."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        with open(opened, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def descendants(ancestor: int) -> list[int]:
    """List the processes beneath one, also those whose first thread has ended."""
    found: list[int] = []
    queue = [ancestor]
    while queue:
        pid = queue.pop()
        for task in numbers(f"/proc/{pid}/task"):
            below = [int(child) for child in read(f"/proc/{pid}/task/{task}/children").split()]
            found += below
            queue += below
    return found


def has_ended(pid: int) -> bool:
    """Return whether a process is gone but for its exit code: all its threads have ended, not only
    the first."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return not fields or (fields[0] in "ZX" and int(fields[17]) <= 1)


def tasks_of_user(user: int) -> int:
    """Count the processes and threads of a user."""
    total = 0
    for pid in numbers("/proc"):
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == user:
                total += os.stat(f"/proc/{pid}/task").st_nlink - 2
    return total
