"""Filters the system calls of programs, for what namespaces, Landlock and users leave open.

The filter is assembled here: the library that does it, libseccomp, comes with the system and not
with Python, and is missing where it is needed most, in small containers.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from . import kernel

# All numbers here are the kernel's: linux/seccomp.h, linux/bpf_common.h, linux/audit.h,
# linux/fs.h, linux/sched.h and the tables of system calls.

SECCOMP_SET_MODE_FILTER = 1

# What a filter answers: SECCOMP_RET_ALLOW, SECCOMP_RET_ERRNO.
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

# Instructions: BPF_LD, BPF_JMP with BPF_JEQ and BPF_JGE, BPF_RET, BPF_ALU with BPF_AND.
_LOAD = 0x20
_EQUAL = 0x15
_AT_LEAST = 0x35
_RETURN = 0x06
_AND = 0x54

# Where a filter finds what, in struct seccomp_data.
_NUMBER = 0
_ARCHITECTURE = 4
_ARGUMENTS = 16

_X32 = 0x40000000
"""From this number on, calls of x86-64 are in the manner of x32."""
_PRIO_USER = 2
_IOPRIO_WHO_USER = 3
_FILE_FLAGS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602)
"""ioctl: FS_IOC_SETFLAGS, its variant for 32 bits, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION."""
_RESERVATIONS = (0x40305828, 0x4030582A, 0x40305839)
"""ioctl: FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE, which allocate as fallocate does."""
_ALLOCATIONS = (0, 0x03, 0x08, 0x10)
"""fallocate: to extend a file, FALLOC_FL_PUNCH_HOLE with KEEP_SIZE, COLLAPSE_RANGE, ZERO_RANGE.

The kernel compares only these with the bound on the size of a file, or they free space.
"""
_FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
"""Of sockets. The others can lead out of a network namespace, such as AF_VSOCK to the host."""
_AF_NETLINK = 16
_NETLINK_ROUTE = 0
"""C libraries ask it for interfaces and their addresses."""

_NEW_NAMESPACES = 0x7E020000
"""clone: all of CLONE_NEW*."""
SECCOMP = {"x86_64": 317, "aarch64": 277}
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CALLS = {
    "x86_64": {
        "socket": 41, "socketpair": 53, "fallocate": 285,
        "clone": 56, "clone3": 435, "unshare": 272, "setns": 308, "memfd_secret": 447,
        "add_key": 248, "request_key": 249, "keyctl": 250,
        "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
        "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190, "setxattrat": 463,
        "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199, "removexattrat": 466,
        "ioctl": 16, "file_setattr": 469, "io_uring_setup": 425, "mq_open": 240,
        "shmget": 29, "semget": 64, "msgget": 68,
        "prlimit64": 302, "setpriority": 141, "ioprio_set": 251,
        "sched_setparam": 142, "sched_setscheduler": 144,
        "sched_setaffinity": 203, "sched_setattr": 314,
    },
    "aarch64": {
        "socket": 198, "socketpair": 199, "fallocate": 47,
        "clone": 220, "clone3": 435, "unshare": 97, "setns": 268, "memfd_secret": 447,
        "add_key": 217, "request_key": 218, "keyctl": 219, "fchown": 55, "fchownat": 54,
        "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "setxattrat": 463,
        "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16, "removexattrat": 466,
        "ioctl": 29, "file_setattr": 469, "io_uring_setup": 425, "mq_open": 180,
        "shmget": 194, "semget": 190, "msgget": 186,
        "prlimit64": 261, "setpriority": 140, "ioprio_set": 30,
        "sched_setparam": 118, "sched_setscheduler": 119,
        "sched_setaffinity": 122, "sched_setattr": 274,
    },
}  # fmt: skip
_ALWAYS_REFUSED = {
    # A program has its namespaces; in one that it makes itself it could mount, and share memory
    # that outlives it.
    errno.EPERM: ("unshare", "setns"),
    # Libraries fall back to clone, whose flags a filter can see. Pages of secret memory belong to
    # no process. A key would be found by the next request. A ring does what other calls are refused
    # for.
    errno.ENOSYS: ("clone3", "memfd_secret", "add_key", "request_key", "keyctl", "io_uring_setup"),
}
_REFUSED = {
    errno.EPERM: ("chown", "fchown", "lchown", "fchownat", "file_setattr"),
    # As on a file system without extended attributes, which programs know how to deal with.
    errno.EOPNOTSUPP: (
        "setxattr", "lsetxattr", "fsetxattr", "setxattrat",
        "removexattr", "lremovexattr", "fremovexattr", "removexattrat",
    ),
    errno.ENOSYS: ("mq_open",),  # what a queue holds stays after the program
}  # fmt: skip
"""Without namespaces."""
_LEFT_BEHIND = ("shmget", "semget", "msgget")
_OF_PROCESS = {
    # libzmq, and so every notebook, aborts if it may not set the scheduling of its own threads,
    # which a filter cannot tell from others: it is told that it succeeded.
    "sched_setparam": 0,
    "sched_setscheduler": 0,
    "sched_setaffinity": errno.EPERM,
    "sched_setattr": errno.EPERM,
}
"""What those that name another process or thread than the caller get.

0 is a success that changes nothing.
"""

_Instruction = tuple[int, int, int, int]
"""Code, how many to skip if true, how many if false, and a value."""
_Block = tuple[str, list[_Instruction]]
"""A system call, and what is done with it."""


def _load(offset: int) -> _Instruction:
    return _LOAD, 0, 0, offset


def _argument(number: int) -> _Instruction:
    return _load(_ARGUMENTS + 8 * number)  # the lower half, on the machines above


def _answer(code: int) -> _Instruction:
    return _RETURN, 0, 0, code


def _unless_equal(value: int, skipped: int) -> _Instruction:
    return _EQUAL, 0, skipped, value


def _fail(code: int) -> _Instruction:
    return _answer(_ERRNO | code)


_DENY = _fail(errno.EPERM)
_ONLY_SELF = [_unless_equal(0, 1), _answer(_ALLOW), _DENY]


def _among(argument: int, allowed: Iterable[int]) -> list[_Instruction]:
    """Allow a call if this argument has one of these values; what follows is for all others."""
    block = [_argument(argument)]
    for value in allowed:
        block += [_unless_equal(value, 1), _answer(_ALLOW)]
    return block


def _always() -> list[_Block]:
    """What is refused in any case."""
    without_namespaces = [
        _argument(0),
        (_AND, 0, 0, _NEW_NAMESPACES),
        _unless_equal(0, 1),
        _answer(_ALLOW),
        _DENY,
    ]
    sockets = [
        *_among(0, _FAMILIES),
        _unless_equal(_AF_NETLINK, 3),
        _argument(2),
        _unless_equal(_NETLINK_ROUTE, 1),
        _answer(_ALLOW),
        _fail(errno.EAFNOSUPPORT),
    ]
    return [
        ("clone", without_namespaces),
        ("socket", sockets),
        ("socketpair", sockets),
        ("fallocate", [*_among(1, _ALLOCATIONS), _fail(errno.EOPNOTSUPP)]),
        *_refusing(_ALWAYS_REFUSED),
    ]


def _ioctl(*, namespaces: bool) -> _Block:
    """What files may not be asked for; their flags only where a program has no namespaces."""
    refused = dict.fromkeys(_RESERVATIONS, errno.EOPNOTSUPP)
    if not namespaces:
        refused |= dict.fromkeys(_FILE_FLAGS, errno.EPERM)
    block = [_argument(1)]
    for value, code in refused.items():
        block += [_unless_equal(value, 1), _fail(code)]
    return "ioctl", [*block, _answer(_ALLOW)]


def _for_processes() -> list[_Block]:
    """What is refused to protect other processes of the same user, such as the server."""
    blocks: list[_Block] = [(name, [_fail(errno.ENOSYS)]) for name in _LEFT_BEHIND]
    for name, code in _OF_PROCESS.items():
        of_others = [_argument(0), _unless_equal(0, 1), _answer(_ALLOW), _fail(code)]
        blocks.append((name, of_others))
    for name, user in (("setpriority", _PRIO_USER), ("ioprio_set", _IOPRIO_WHO_USER)):
        not_of_user = [_argument(0), _unless_equal(user, 1), _DENY]
        blocks.append((name, [*not_of_user, _argument(1), *_ONLY_SELF]))
    reads_only = [
        _argument(2),
        _unless_equal(0, 3),
        _load(_ARGUMENTS + 20),
        _unless_equal(0, 1),
        _answer(_ALLOW),
    ]
    blocks.append(("prlimit64", [*reads_only, _argument(0), *_ONLY_SELF]))
    return blocks


def _refusing(refused: Mapping[int, tuple[str, ...]]) -> Iterator[_Block]:
    for code, names in refused.items():
        for name in names:
            yield name, [_fail(code)]


@cache
def assembled(machine: str, *, namespaces: bool, same_user: bool) -> bytes:
    """Return the filter.

    With `same_user`, it also protects other processes of the same user, such as the server.
    """
    blocks = [*_always(), _ioctl(namespaces=namespaces)]
    if not namespaces:
        blocks += _refusing(_REFUSED)
        if same_user:
            blocks += _for_processes()

    other = _fail(errno.ENOSYS)  # calls in the manner of another architecture
    program = [_load(_ARCHITECTURE), (_EQUAL, 1, 0, _ARCHITECTURES[machine]), other, _load(_NUMBER)]
    if machine == "x86_64":
        program += [(_AT_LEAST, 0, 1, _X32), other]
    calls = CALLS[machine]
    for name, block in blocks:
        if name in calls:
            program += [_unless_equal(calls[name], len(block)), *block]
    program.append(_answer(_ALLOW))
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


def available_here() -> bool:
    return kernel.LINUX and os.uname().machine in CALLS


def install(*, namespaces: bool, same_user: bool) -> None:
    """Filter this process and its children for good."""
    machine = os.uname().machine
    program = assembled(machine, namespaces=namespaces, same_user=same_user)
    buffer = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    result = kernel.libc.syscall(
        SECCOMP[machine], SECCOMP_SET_MODE_FILTER, ctypes.c_ulong(0), given
    )
    kernel.check(result, "seccomp")
