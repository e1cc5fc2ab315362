"""A control group (version 2) for each command: the kernel itself bounds its memory and its processes.

The supervisor counts too, and names what was exceeded. But it looks from time to time, while the kernel refuses the
first page too many, and only the kernel counts its own memory: buffers of sockets and pipes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import IO

from .spec import ResourceBounds

PREFIX = "sfusion-"
SPARE_TASKS = 16
"""Tasks above the bound that the kernel allows, so that the supervisor sees the bound exceeded and says so."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PATIENCE = 1.0
"""Seconds for the kernel to let go of the processes of a group that has been killed."""


class ControlGroups:
    """The groups of one guard: one for itself, and beneath it one per command.

    All is done through descriptors: a command's namespace makes the path read-only, also for its keeper.
    """

    def __init__(self, folder: str) -> None:
        """``folder`` is a group whose children have the controllers for memory and processes."""
        self._path = os.path.join(folder, f"{PREFIX}{os.getpid()}")
        os.mkdir(self._path)
        self._group = os.open(self._path, _DIRECTORY)
        try:
            _write(self._group, "cgroup.subtree_control", "+memory +pids")
        except OSError:
            self.close()
            raise

    @classmethod
    def of_this_process(cls) -> ControlGroups | None:
        """Return groups beside the nearest one of this process that may have such; None if it may not."""
        for folder in _ancestors():
            _sweep(folder)
            with suppress(OSError):
                return cls(folder)
        return None

    def open(self, bounds: ResourceBounds) -> ControlGroup:
        """Make a group for one command."""
        group = ControlGroup(self._group, str(os.getpid()), bounds.memory)
        try:
            group.set("memory.max", bounds.memory)
            group.set("pids.max", bounds.tasks + SPARE_TASKS)
            with suppress(OSError):  # a machine without swap
                group.set("memory.swap.max", 0)
            with suppress(OSError):  # from Linux 4.19: all processes die together
                group.set("memory.oom.group", 1)
        except OSError:
            group.close()
            raise
        return group

    def close(self) -> None:
        """Remove the group, once its commands are gone."""
        os.close(self._group)
        with suppress(OSError):
            os.rmdir(self._path)


class ControlGroup:
    """The group of one command."""

    def __init__(self, parent: int, name: str, memory: int) -> None:
        self._parent, self._name = parent, name
        self._memory = memory
        os.mkdir(name, dir_fd=parent)
        self._group = os.open(name, _DIRECTORY, dir_fd=parent)
        self._door = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._group)

    def set(self, name: str, value: int) -> None:
        _write(self._group, name, str(value))

    def join(self) -> None:
        """Move this process into the group."""
        os.write(self._door, b"0")

    def broken_bound(self) -> str:
        """Say for which bound the kernel has killed a process; empty if it has not."""
        with _open("memory.events", dir_fd=self._group) as file:
            killed = re.search(r"^oom_kill (\d+)", file.read(), re.MULTILINE)
        return f"more than {self._memory // 2**20} MiB of memory" if killed and int(killed[1]) else ""

    def close(self) -> None:
        """Kill what is left in the group and remove it."""
        for fd in (self._door, self._group):
            os.close(fd)
        _remove(self._parent, self._name)


def _ancestors() -> Iterator[str]:
    """Yield the groups above this process's own, nearest first, whose children have both controllers."""
    mounted = re.search(r"^\S+ (\S+) cgroup2 ", _read("/proc/mounts"), re.MULTILINE)
    own = re.search(r"^0::(/.*)$", _read("/proc/self/cgroup"), re.MULTILINE)
    if mounted is None or own is None:
        return
    path = own[1]
    while True:
        path = os.path.dirname(path)
        folder = mounted[1] + path.rstrip("/")
        if {"memory", "pids"} <= set(_read(f"{folder}/cgroup.subtree_control").split()):
            yield folder
        if path == "/":
            return


def _sweep(folder: str) -> None:
    """Remove the groups of guards that were killed."""
    with suppress(OSError):
        for name in os.listdir(folder):
            number = name.removeprefix(PREFIX)
            if name.startswith(PREFIX) and number.isdigit() and not os.path.exists(f"/proc/{number}"):
                group = os.open(os.path.join(folder, name), _DIRECTORY)
                for inner in filter(str.isdigit, os.listdir(group)):
                    _remove(group, inner)
                os.close(group)
                os.rmdir(os.path.join(folder, name))


def _remove(parent: int, name: str) -> None:
    with suppress(OSError):  # from Linux 5.14; without it the supervisor has killed what it found
        _write(parent, f"{name}/cgroup.kill", "1")
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        try:
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.001)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def _write(folder: int, name: str, text: str) -> None:
    with _open(name, os.O_WRONLY, dir_fd=folder) as file:
        file.write(text)


def _open(name: str, flags: int = os.O_RDONLY, *, dir_fd: int) -> IO[str]:
    mode = "r" if flags == os.O_RDONLY else "w"
    return open(name, mode, encoding="utf-8", opener=lambda path, _: os.open(path, flags | os.O_CLOEXEC, dir_fd=dir_fd))
