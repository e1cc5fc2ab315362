"""A control group for each command, of either version: the kernel bounds its memory and its
tasks."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import suppress

from .processes import read
from .spec import ResourceBounds

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PERIOD = 100_000
"""Microseconds over which processor time is shared out."""
_PATIENCE = 1.0
"""Seconds for the kernel to let go of the processes of a group that has been killed."""

_Settings = dict[str, dict[str, str]]
"""By controller: what to write into which file. A name with a question mark may be missing."""


def _settings(bounds: ResourceBounds, version: int) -> _Settings:
    memory, tasks = str(bounds.memory), {"pids.max": str(bounds.tasks)}
    quota = int((bounds.cpus or 0) * _PERIOD)
    if version == 1:
        # The second one counts swap, and may not be smaller than the first.
        made = {
            "memory": {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes?": memory},
            "pids": tasks,
        }
        return made | ({"cpu": {"cpu.cfs_quota_us": str(quota)}} if quota else {})
    whole = {"memory.max": memory, "memory.swap.max?": "0", "memory.oom.group?": "1"}
    return {"memory": whole, "pids": tasks} | (
        {"cpu": {"cpu.max": f"{quota} {_PERIOD}"}} if quota else {}
    )


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
                files = {
                    file: text
                    for controller in controllers
                    for file, text in settings[controller].items()
                }
                self._parents.append((os.open(path, _DIRECTORY), files))
                if version == 2:
                    _write(
                        self._parents[-1][0],
                        "cgroup.subtree_control",
                        " ".join(f"+{one}" for one in controllers),
                    )
        except OSError:
            self.close()
            raise

    @classmethod
    def of_this_process(cls, bounds: ResourceBounds, name: str) -> ControlGroups | None:
        """Return the groups that this process may make; None if there are none with all that is
        bounded."""
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
        self._name, self._bounds = name, bounds
        self._groups: list[tuple[int, int]] = []
        try:
            for parent, files in parents:
                os.mkdir(name, dir_fd=parent)
                self._groups.append((parent, os.open(name, _DIRECTORY, dir_fd=parent)))
                for file, text in files.items():
                    try:
                        _write(self._groups[-1][1], file.rstrip("?"), text)
                    except OSError:
                        if not file.endswith("?"):
                            raise
        except OSError:
            self.close()
            raise

    def join(self) -> None:
        """Move this process into the group."""
        for _, group in self._groups:
            _write(group, "cgroup.procs", "0")

    def broken_bound(self) -> str:
        """Say which bound the kernel had to enforce; empty if none."""
        for _, group in self._groups:
            for file, word, bound in (
                (
                    "memory.events",
                    "oom_kill",
                    f"more than {self._bounds.memory // 2**20} MiB of memory",
                ),
                (
                    "memory.oom_control",
                    "oom_kill",
                    f"more than {self._bounds.memory // 2**20} MiB of memory",
                ),
                ("pids.events", "max", f"more than {self._bounds.tasks} processes and threads"),
            ):
                found = re.search(rf"^{word} (\d+)", read(file, group), re.MULTILINE)
                if found and int(found[1]):
                    return bound
        return ""

    def close(self) -> None:
        """Kill what is left in the group and remove it."""
        for _, group in self._groups:
            with suppress(OSError):  # nothing new may start while the others are killed
                _write(group, "pids.max", "0")
        for parent, group in self._groups:
            os.close(group)
            _remove(parent, self._name)


def _places(bounds: ResourceBounds) -> Iterator[tuple[int, dict[str, set[str]]]]:
    """Yield where groups with all controllers might be made: version, and the groups to make
    them in."""
    mounts = [line.split() for line in read("/proc/mounts").splitlines()]
    own = {
        names: path
        for _, names, path in (
            line.split(":", 2) for line in read("/proc/self/cgroup").splitlines()
        )
    }
    wanted = set(_settings(bounds, 2))
    for _, point, kind, *_ in mounts:
        path = own.get("", "/") if kind == "cgroup2" else "/"
        while (
            path != "/"
        ):  # a group with processes may have no children with controllers; those above it may
            path = os.path.dirname(path)
            folder = point + path.rstrip("/")
            if wanted <= set(read(f"{folder}/cgroup.subtree_control").split()):
                yield 2, {folder: wanted}
    places: dict[str, set[str]] = {}
    for names, path in own.items():
        for _, point, kind, options, *_ in mounts:
            found = wanted & set(names.split(",")) & set(options.split(","))
            if kind == "cgroup" and found:
                # In a container the path may be that of the machine, which is mounted as the root
                # here.
                folder = point + path.rstrip("/")
                places[folder if os.path.isdir(folder) else point] = found
    if {name for names in places.values() for name in names} == wanted:
        yield 1, places


def writable_places(bounds: ResourceBounds) -> list[str]:
    """Return the folders in which groups may be made."""
    return next(
        (
            list(folders)
            for _, folders in _places(bounds)
            if all(os.access(one, os.W_OK) for one in folders)
        ),
        [],
    )


def _remove(parent: int, name: str) -> None:
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
            time.sleep(0.001)


def _write(folder: int, name: str, text: str) -> None:
    opened = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(opened, text.encode())
    finally:
        os.close(opened)
