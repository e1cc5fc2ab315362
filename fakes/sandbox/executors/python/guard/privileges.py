"""Takes a program's privileges: capabilities, and with them root's user.

In place of root it gets a user of its own.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from . import kernel
from .kernel import SHARED_MEMORY
from .processes import read
from .trees import remove_tree

# The kernel's numbers: linux/prctl.h, linux/securebits.h, linux/capability.h.
PR_SET_SECUREBITS = 28
SECBIT_NO_SETUID_FIXUP = 4
PR_CAPBSET_DROP = 24
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_RAISE = 2
PR_CAP_AMBIENT_CLEAR_ALL = 4
CAP_DAC_READ_SEARCH = 2
CAPABILITY_VERSION = 0x20080522

OWN_USERS = ((0x53460000, 0xFFFF), (61_184, 4_096))
"""First id and number of the users that programs may become.

Chosen: nobody has ids of the first range ("SF" in its upper half); the second also exists in most
user namespaces.
"""


def drop_capabilities() -> None:
    """Drop all capabilities, so that no program that this process starts gets them either."""
    _bound_capabilities()
    kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities()


def _bound_capabilities(*kept: int) -> None:
    with suppress(OSError):  # this kernel has no more, or this process has none to drop
        for capability in itertools.count():
            if capability not in kept:
                kernel.prctl(PR_CAPBSET_DROP, capability)


def _set_capabilities(*kept: int) -> None:
    mask = sum(1 << capability for capability in kept)
    header = struct.pack("=Ii", CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable: the lower 32 capabilities of each, then the others.
    lower = (mask, mask, mask)
    others = (0, 0, 0)
    sets = struct.pack("=6I", *lower, *others)
    kernel.check(kernel.libc.capset(header, sets), "capset")


def become(user: int, *, reads: bool) -> None:
    """Turn from root into a user of its own without capabilities.

    With `reads`, it may read all that root may.
    """
    kept = [CAP_DAC_READ_SEARCH] if reads else []
    os.setgroups([])
    os.setresgid(user, user, user)
    # Keep them while the user changes, and let access(), which asks about the real user, know of
    # them.
    kernel.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP)
    _bound_capabilities(*kept)
    os.setresuid(user, user, user)
    kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    _set_capabilities(*kept)
    for capability in kept:
        kernel.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability)


def become_root_of_own(parent: socket.socket) -> None:
    """Enter a user namespace in which the user of its own, which `parent` maps, is called root."""
    os.setgroups([])
    kernel.check(kernel.libc.unshare(kernel.CLONE_NEWUSER), "unshare")
    parent.send(b"?")
    if not parent.recv(1):
        raise OSError("the user namespace could not be set up")
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)
    drop_capabilities()


def map_user(child: socket.socket, pid: int, user: int) -> None:
    """Call the user `user` root in the user namespace of a process, once it has entered it."""
    if child.recv(1):
        kernel.map_ids(pid, f"0 {user} 1", f"0 {user} 1")
        child.send(b"!")


IPC_RMID = 0
_REMOVE: dict[str, Callable[[int], object]] = {
    "shm": lambda number: kernel.libc.shmctl(number, IPC_RMID, None),
    "sem": lambda number: kernel.libc.semctl(number, 0, IPC_RMID),
    "msg": lambda number: kernel.libc.msgctl(number, IPC_RMID, None),
}


def remove_leftovers(user: int) -> None:
    """Remove what a user has in /dev/shm, and its segments, semaphores and queues of System V."""
    if os.path.isdir(SHARED_MEMORY):
        for entry in os.scandir(SHARED_MEMORY):
            with suppress(OSError):
                _remove_of(user, entry)
    for kind, remove in _REMOVE.items():
        lines = [line.split() for line in read(f"/proc/sysvipc/{kind}").splitlines()]
        for fields in lines[1:]:
            if int(fields[lines[0].index("uid")]) == user:
                remove(int(fields[1]))


def _remove_of(user: int, entry: os.DirEntry[str]) -> None:
    """Remove a file or a directory if it belongs to this user."""
    if entry.stat(follow_symlinks=False).st_uid != user:
        return
    if entry.is_dir(follow_symlinks=False):
        remove_tree(entry.path)
    else:
        os.unlink(entry.path)
