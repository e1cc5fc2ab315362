"""Removes what a program without namespaces left in shared memory, if it had a user of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress

from . import kernel
from .census import read
from .memory import SHARED_MEMORY

IPC_RMID = 0
_REMOVE: dict[str, Callable[[int], object]] = {
    "shm": lambda number: kernel.libc.shmctl(number, IPC_RMID, None),
    "sem": lambda number: kernel.libc.semctl(number, 0, IPC_RMID),
    "msg": lambda number: kernel.libc.msgctl(number, IPC_RMID, None),
}


def remove_of_user(user: int) -> None:
    """Remove the user's files in /dev/shm, and its segments, semaphores and queues of System V."""
    for entry in os.scandir(SHARED_MEMORY) if os.path.isdir(SHARED_MEMORY) else ():
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid == user:
                os.unlink(entry.path)
    for kind, remove in _REMOVE.items():
        lines = [line.split() for line in read(f"/proc/sysvipc/{kind}").splitlines()]
        for fields in lines[1:]:
            if int(fields[lines[0].index("uid")]) == user:
                remove(int(fields[1]))
