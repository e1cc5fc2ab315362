"""What Linux offers to confine a program: namespaces, Landlock, capabilities, parent-death signals.

Everything goes through libc with ctypes, so that no package is needed. On other systems everything
here is reported as not available, and nothing is called.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

LINUX = sys.platform.startswith("linux")

# All numbers are the kernel's: linux/sched.h, linux/mount.h, linux/prctl.h, linux/landlock.h.

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
SYS_MOUNT_SETATTR = 442
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

# Landlock's syscalls have the same numbers on every architecture.
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_ADD_RULE = 445
SYS_LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_RULE_PATH_BENEATH = 1

WRITE_FILE = 1 << 1
MAKE_CHAR = 1 << 6
MAKE_BLOCK = 1 << 11
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""All rights of the first version that change something.

Write, remove dir and file, make char, dir, reg, sock, fifo, block, sym.
"""
REFER = 1 << 13
TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15
SCOPE_ABSTRACT_SOCKET = 1
SCOPE_SIGNAL = 2

DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
)
TERMINALS = "/dev/pts"
SHARED_MEMORY = "/dev/shm"


libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int = 0, more: int = 0) -> None:
    """Call ``prctl``; raises OSError."""
    zero = ctypes.c_ulong(0)
    result = libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(more), zero, zero)
    check(result, f"prctl {option}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """Mount a file system; only called inside our own mount namespace."""
    encoded = kind.encode() if kind else None
    result = libc.mount(
        source.encode(), target.encode(), encoded, ctypes.c_ulong(flags), data.encode()
    )
    check(result, f"mount {target}")


def enter_namespaces() -> None:
    """Give the next child of this process its own process ids, mounts and shared memory."""
    _unshare(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC)


def enter_network() -> None:
    """Give this process and its children a network of their own.

    It has nothing but a loopback.
    """
    _unshare(CLONE_NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def _unshare(flags: int) -> None:
    """Users other than root need a user namespace for that, in which their ids stay the same."""
    uid = os.geteuid()
    gid = os.getegid()
    check(libc.unshare(flags if uid == 0 else flags | CLONE_NEWUSER), "unshare")
    if uid:
        map_ids("self", f"{uid} {uid} 1", f"{gid} {gid} 1")


def map_ids(process: int | str, users: str, groups: str) -> None:
    """Say which users and groups the user namespace of a process has."""
    for name, text in (("setgroups", "deny"), ("uid_map", users), ("gid_map", groups)):
        with open(f"/proc/{process}/{name}", "w", encoding="utf-8") as file:
            file.write(text)


EMPTY = "/empty"
"""In the room: what programs see in place of the hidden directories and files."""
NEW_DIRECTORY = "/new/directory"
NEW_FILE = "/new/file"
"""In the room: the same for what appears in `/` later."""


def make_empty(room: str, hidden: Sequence[str], needed: Sequence[str]) -> None:
    """Make the directories and files that hide others, with places for what is needed."""
    inside = tuple(point + os.sep for point in hidden)
    directories = [path for path in needed if path.startswith(inside)]
    for path in hidden:
        if os.path.isdir(path):
            directories.append(path)
        else:
            os.makedirs(room + EMPTY + os.path.dirname(path), 0o755, exist_ok=True)
            with open(room + EMPTY + path, "wb"):
                pass
    for path in directories:
        os.makedirs(room + EMPTY + path, 0o755, exist_ok=True)
    os.makedirs(room + NEW_DIRECTORY, 0o755, exist_ok=True)
    with open(room + NEW_FILE, "wb"):
        pass


def isolate_namespace(
    room: int,
    shared_memory: int,
    hidden: Sequence[str],
    needed: Sequence[str],
    known: Collection[str],
) -> None:
    """Restrict the first process of a new namespace to what is its own.

    That is its processes, shared memory and terminals. What is left of the machine is read-only,
    and of what is `hidden` only what is `needed`. What is in `/` but not `known` looks empty.
    """
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    set_mount(AT_RECURSIVE, "/", MOUNT_ATTR_RDONLY)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if os.path.isdir(SHARED_MEMORY):
        size = f"size={shared_memory},mode=1777"
        mount("tmpfs", SHARED_MEMORY, "tmpfs", MS_NOSUID | MS_NODEV, size)
    if os.path.isdir(TERMINALS):
        own = "newinstance,ptmxmode=0666,mode=620"
        mount("devpts", TERMINALS, "devpts", MS_NOSUID | MS_NOEXEC, own)

    for point in filter(os.path.lexists, hidden):  # others were removed meanwhile
        kept = {
            path: os.open(path, os.O_PATH | os.O_CLOEXEC)
            for path in needed
            if path.startswith(point + os.sep)
        }
        mount(f"/proc/self/fd/{room}{EMPTY}{point}", point, None, MS_BIND | MS_REC)
        for path, descriptor in kept.items():
            # A user namespace may not take a directory without the mounts beneath it, which could
            # hide something.
            mount(f"/proc/self/fd/{descriptor}", path, None, MS_BIND | MS_REC)
            os.close(descriptor)
        refuse_writable(point)
    _hide_what_is_new(room, known)


def _hide_what_is_new(room: int, known: Collection[str]) -> None:
    with os.scandir("/") as entries:
        new = [entry for entry in entries if entry.path not in known and not entry.is_symlink()]
    for entry in new:
        empty = NEW_DIRECTORY if entry.is_dir() else NEW_FILE
        with suppress(FileNotFoundError):  # it was removed meanwhile
            mount(f"/proc/self/fd/{room}{empty}", entry.path, None, MS_BIND)
            refuse_writable(entry.path)


def mount_directories(room: int, mounts: Mapping[str, str], needed: Sequence[str]) -> None:
    """Mount directories of the room, which can be written to, in place of the machine's.

    The needed ones stay visible. The room is given by a descriptor, because its path may be
    hidden.
    """
    opened = {}
    for point, directory in mounts.items():
        directory = f"/proc/self/fd/{room}{directory}"
        for path in needed:
            if path.startswith(point + os.sep):
                _mount_needed(path, directory, path.removeprefix(point))
        # Opened first: the first mount may hide the directories of the others.
        opened[point] = os.open(directory, os.O_PATH | os.O_CLOEXEC)
    for point, descriptor in opened.items():
        mount(f"/proc/self/fd/{descriptor}", point, None, MS_BIND | MS_REC)
        os.close(descriptor)
        set_mount(0, point, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, MOUNT_ATTR_RDONLY)
    for path in ("/", *needed):
        refuse_writable(path)


def _mount_needed(path: str, directory: str, beneath: str) -> None:
    """Mount a directory of the machine beneath one of the room."""
    target = directory + beneath
    if os.path.realpath(target) != os.path.realpath(directory) + beneath:
        # An earlier command of the request put a link there.
        raise OSError(f"{path} cannot be mounted: a link is in its place")
    mount(path, target, None, MS_BIND | MS_REC)


def set_mount(flags: int, path: str, added: int, removed: int = 0) -> None:
    attributes = struct.pack("QQQQ", added, removed, 0, 0)
    size = ctypes.c_size_t(len(attributes))
    result = libc.syscall(SYS_MOUNT_SETATTR, -1, path.encode(), flags, attributes, size)
    check(result, f"mount_setattr {path}")


def refuse_writable(path: str) -> None:
    """Raise unless it is on a read-only mount: no program may start without that."""
    if not os.statvfs(path).f_flag & os.ST_RDONLY:
        raise OSError(f"{path} should be read-only and is not")


def landlock_version() -> int:
    """Return the version of Landlock that the kernel supports; 0 if none."""
    if not LINUX:
        return 0
    version = libc.syscall(
        SYS_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), LANDLOCK_CREATE_RULESET_VERSION
    )
    return max(int(version), 0)


def allow_writes_only_beneath(directories: list[str]) -> None:
    """Permanently forbid this process and its children to change files outside these directories.

    Needs `PR_SET_NO_NEW_PRIVS`. Harmless devices stay writable, and reading is not restricted.
    Signals to other processes and their abstract sockets are blocked if the kernel supports it
    (Linux 6.12).
    """
    version = landlock_version()
    if not version:
        raise OSError("Landlock is not available")
    handled = WRITES
    if version >= 2:
        handled |= REFER
    if version >= 3:
        handled |= TRUNCATE
    if version >= 5:
        handled |= IOCTL_DEV
    ruleset = _make_ruleset(version, handled)
    file_rights = handled & (WRITE_FILE | TRUNCATE | IOCTL_DEV)
    try:
        for directory in directories:
            _allow(ruleset, directory, handled & ~(MAKE_CHAR | MAKE_BLOCK))
        for device in DEVICES:
            if os.path.exists(device):
                _allow(ruleset, device, file_rights)
        check(libc.syscall(SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    finally:
        os.close(ruleset)


def _make_ruleset(version: int, handled: int) -> int:
    """Return a new ruleset for these rights; older kernels refuse fields that they do not know."""
    attributes = struct.pack("Q", handled)
    if version >= 4:
        attributes += struct.pack("Q", 0)  # network rights
    if version >= 6:
        attributes += struct.pack("Q", SCOPE_ABSTRACT_SOCKET | SCOPE_SIGNAL)
    size = ctypes.c_size_t(len(attributes))
    created = libc.syscall(SYS_LANDLOCK_CREATE_RULESET, attributes, size, 0)
    return check(created, "landlock_create_ruleset")


def _allow(ruleset: int, path: str, rights: int) -> None:
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = struct.pack("=Qi", rights, parent)
        added = libc.syscall(SYS_LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
        check(added, f"landlock_add_rule {path}")
    finally:
        os.close(parent)
