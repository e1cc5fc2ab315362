"""A control group for each command, of either version.

With it, the kernel bounds the command's memory and its tasks.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from .processes import read
from .spec import ResourceBounds

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PERIOD = 100_000
"""Microseconds over which processor time is shared out: the kernel's default."""

_Settings = dict[str, dict[str, str]]
"""By controller: what to write into which file. A name with a question mark may be missing."""


def _settings(bounds: ResourceBounds, version: int) -> _Settings:
    """Return the settings that bound one command."""
    memory = str(bounds.memory)
    quota = int((bounds.cpus or 0) * _PERIOD)
    settings: _Settings = {}
    if version == 1:
        # The second one counts swap, and may not be smaller than the first.
        settings["memory"] = {
            "memory.limit_in_bytes": memory,
            "memory.memsw.limit_in_bytes?": memory,
        }
    else:
        settings["memory"] = {
            "memory.max": memory,
            "memory.swap.max?": "0",
            "memory.oom.group?": "1",
        }
    settings["pids"] = {"pids.max": str(bounds.tasks)}
    if quota and version == 1:
        settings["cpu"] = {"cpu.cfs_quota_us": str(quota)}
    elif quota:
        settings["cpu"] = {"cpu.max": f"{quota} {_PERIOD}"}
    return settings


class ControlGroups:
    """The groups of one guard: one of its own in each hierarchy, and beneath it one per command.

    All is done through descriptors: a command's namespace makes the path read-only, also for its
    keeper.
    """

    def __init__(
        self, bounds: ResourceBounds, name: str, version: int, folders: dict[str, set[str]]
    ) -> None:
        """``folders`` are groups, each with the controllers that its children have."""
        self.version = version
        self._bounds = bounds
        self._name = name
        self._parents: list[tuple[int, dict[str, str]]] = []
        settings = _settings(bounds, version)
        self._folders = list(folders)
        try:
            for folder, controllers in folders.items():
                path = os.path.join(folder, name)
                with suppress(FileExistsError):  # of a guard of this server that was killed
                    os.mkdir(path)
                files: dict[str, str] = {}
                for controller in controllers:
                    files |= settings[controller]
                group = os.open(path, _DIRECTORY)
                self._parents.append((group, files))
                if version == 2:
                    passed_on = " ".join(f"+{controller}" for controller in controllers)
                    _write(group, "cgroup.subtree_control", passed_on)
        except OSError:
            self.close()
            raise

    @classmethod
    def of_this_process(cls, bounds: ResourceBounds, name: str) -> ControlGroups | None:
        """Return the groups that this process may make.

        Return None if there are none with all that is bounded.
        """
        for version, folders in _places(bounds):
            with suppress(OSError):
                return cls(bounds, name, version, folders)
        return None

    def open(self) -> ControlGroup:
        """Make a group for one command."""
        return ControlGroup(self._parents, str(os.getpid()), self._bounds)

    def remove(self, name: str) -> None:
        """Remove the groups of a guard of that name that was killed."""
        for folder in self._folders:
            with suppress(OSError):
                path = os.path.join(folder, name)
                group = os.open(path, _DIRECTORY)
                for inner in filter(str.isdigit, os.listdir(group)):
                    _remove(group, inner)
                os.close(group)
                os.rmdir(path)

    def close(self) -> None:
        """Remove the groups, once their commands are gone."""
        for parent, _ in self._parents:
            os.close(parent)
        self.remove(self._name)


class ControlGroup:
    """The group of one command."""

    def __init__(
        self, parents: list[tuple[int, dict[str, str]]], name: str, bounds: ResourceBounds
    ) -> None:
        self._name = name
        self._bounds = bounds
        self._groups: list[tuple[int, int]] = []
        try:
            for parent, files in parents:
                os.mkdir(name, dir_fd=parent)
                group = os.open(name, _DIRECTORY, dir_fd=parent)
                self._groups.append((parent, group))
                for file, text in files.items():
                    _set(group, file, text)
        except OSError:
            self.close()
            raise

    def join(self) -> None:
        """Move this process into the group."""
        for _, group in self._groups:
            _write(group, "cgroup.procs", "0")

    def broken_bound(self) -> str:
        """Say which bound the kernel had to enforce; empty if none."""
        memory = f"more than {self._bounds.memory // 2**20} MiB of memory"
        tasks = f"more than {self._bounds.tasks} processes and threads"
        for _, group in self._groups:
            if _count(group, "memory.events", "oom_kill"):  # version 2
                return memory
            if _count(group, "memory.oom_control", "oom_kill"):  # version 1
                return memory
            if _count(group, "pids.events", "max"):
                return tasks
        return ""

    def close(self) -> None:
        """Kill what is left in the group and remove it."""
        for _, group in self._groups:
            with suppress(OSError):  # nothing new may start while the others are killed
                _write(group, "pids.max", "0")
        for parent, group in self._groups:
            os.close(group)
            _remove(parent, self._name)


class _Mount(NamedTuple):
    """A line of /proc/mounts, as far as it matters here."""

    point: str
    kind: str
    options: str


def _places(bounds: ResourceBounds) -> Iterator[tuple[int, dict[str, set[str]]]]:
    """Yield where groups with all controllers might be made.

    That is the version, and the groups to make them in, each with its controllers.
    """
    mounts = [_Mount(*line.split()[1:4]) for line in read("/proc/mounts").splitlines()]
    own: dict[str, str] = {}
    for line in read("/proc/self/cgroup").splitlines():
        _number, names, path = line.split(":", 2)
        own[names] = path

    wanted = set(_settings(bounds, 2))
    for mount in mounts:
        if mount.kind == "cgroup2":
            for folder in _parents_with(wanted, mount, own.get("", "/")):
                yield 2, {folder: wanted}

    places = _hierarchies(wanted, mounts, own)
    if set().union(*places.values()) == wanted:
        yield 1, places


def _parents_with(wanted: set[str], mount: _Mount, path: str) -> Iterator[str]:
    """Yield the groups of version 2 above this process whose children have these controllers.

    A group with processes may have no children with controllers; those above it may.
    """
    while path != "/":
        path = os.path.dirname(path)
        folder = mount.point + path.rstrip("/")
        if wanted <= set(read(f"{folder}/cgroup.subtree_control").split()):
            yield folder


def _hierarchies(
    wanted: set[str], mounts: list[_Mount], own: dict[str, str]
) -> dict[str, set[str]]:
    """Return the groups of version 1 of this process, each with those controllers it has."""
    places: dict[str, set[str]] = {}
    for names, path in own.items():
        for mount in mounts:
            found = wanted & set(names.split(",")) & set(mount.options.split(","))
            if mount.kind == "cgroup" and found:
                folder = mount.point + path.rstrip("/")
                # In a container the path may be that of the machine, which is mounted as the root
                # here.
                places[folder if os.path.isdir(folder) else mount.point] = found
    return places


def writable_places(bounds: ResourceBounds) -> list[str]:
    """Return the folders in which groups may be made."""
    for _version, folders in _places(bounds):
        if all(os.access(folder, os.W_OK) for folder in folders):
            return list(folders)
    return []


_PATIENCE = 1.0
"""Seconds for the kernel to let go of the processes of a group that has been killed (chosen)."""
_LOOK = 0.001
"""Seconds between two looks whether it has (chosen)."""


def _remove(parent: int, name: str) -> None:
    """Kill what is in a group and remove it."""
    with suppress(OSError):  # from Linux 5.14
        _write(parent, f"{name}/cgroup.kill", "1")
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        for pid in read(f"{name}/cgroup.procs", parent).split():
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            os.rmdir(name, dir_fd=parent)
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(_LOOK)


def _count(group: int, file: str, word: str) -> int:
    """Return the number after a word in a file of a group; 0 if there is none."""
    found = re.search(rf"^{word} (\d+)", read(file, group), re.MULTILINE)
    return int(found[1]) if found else 0


def _set(group: int, file: str, text: str) -> None:
    """Change a setting; one with a question mark may be missing."""
    try:
        _write(group, file.rstrip("?"), text)
    except OSError:
        if not file.endswith("?"):
            raise


def _write(folder: int, name: str, text: str) -> None:
    opened = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)
