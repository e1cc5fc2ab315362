"""Measures the memory of a program: private, shared, and in files that exist only in memory. Reads only /proc."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from .census import numbers, read

SHARED_MEMORY = "/dev/shm"
LONGEST = 2.0
"""Seconds of this process for one measurement. Meanwhile nothing else is watched, and a program can make it long with
many mappings or descriptors in many processes."""
_Inode = tuple[int, int]
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+)", re.MULTILINE)
_PSS = re.compile(r"^Pss: +(\d+) kB", re.MULTILINE)
_RESIDENT = re.compile(r"^Rss(Anon|Shmem):\s+(\d+) kB", re.MULTILINE)


class TooLongError(Exception):
    """Raised if memory cannot be measured in a reasonable time."""


class Memory:
    def __init__(self, *, private_shm: bool, owner: int | None) -> None:
        """Count everything in /dev/shm if it is the program's own, else the files of `owner`, its own user."""
        self._private_shm = private_shm
        self._owner = owner
        self._devices = set(_devices())
        self._shm = _device(SHARED_MEMORY)
        self._until = 0.0

    def used(self, pids: list[int], bound: int) -> int:
        """Return the bytes in use; exact only if a cheap sum, which repeats shared pages, is too high.

        Raises TooLongError.
        """
        self._until = time.process_time() + LONGEST
        resident = {pid: _resident(pid) for pid in pids}
        files = self._files(pids)
        rest = self._in_private_shm()
        cheap = sum(anonymous + shared for anonymous, shared in resident.values()) + sum(files.values()) + rest
        if cheap <= bound:
            return cheap
        mapped: dict[_Inode, int] = {}
        anonymous_total = 0
        for pid, (anonymous, shared) in resident.items():
            self._check_time()
            anonymous_total += _proportional(pid, anonymous)
            if shared:
                self._add_mapped(pid, mapped)
        held = sum(max(files.get(inode, 0), mapped.get(inode, 0)) for inode in files.keys() | mapped.keys())
        return anonymous_total + held + rest

    def _files(self, pids: list[int]) -> dict[_Inode, int]:
        """Return the sizes of the files in memory that are open, left in /dev/shm, or segments of System V."""
        files: dict[_Inode, int] = {}
        for pid in pids:
            self._check_time()
            for descriptor in numbers(f"/proc/{pid}/fd"):
                self._add_file(f"/proc/{pid}/fd/{descriptor}", files)
        if not self._private_shm and self._owner is not None:
            with os.scandir(SHARED_MEMORY) as entries:
                for entry in entries:
                    self._add_file(entry.path, files, self._owner)
        if self._private_shm or self._owner is not None:
            for line in read("/proc/sysvipc/shm").splitlines()[1:]:
                fields = line.split()
                if self._private_shm or int(fields[7]) == self._owner:
                    files.update({(device, int(fields[1])): int(fields[14]) for device in self._devices - {self._shm}})
        return files

    def _check_time(self) -> None:
        if time.process_time() > self._until:
            raise TooLongError

    def _add_file(self, path: str, files: dict[_Inode, int], owner: int | None = None) -> None:
        try:
            found = os.stat(path)
        except OSError:  # it has been closed
            return
        if found.st_dev in self._devices and owner in (None, found.st_uid):
            files[found.st_dev, found.st_ino] = found.st_blocks * 512

    def _add_mapped(self, pid: int, mapped: dict[_Inode, int]) -> None:
        text = read(f"/proc/{pid}/smaps")
        for found in _MAPPING.finditer(text):
            inode = os.makedev(int(found[1], 16), int(found[2], 16)), int(found[3])
            size = _PSS.search(text, found.end()) if inode[0] in self._devices else None
            if size:
                mapped[inode] = mapped.get(inode, 0) + int(size[1]) * 1024

    def _in_private_shm(self) -> int:
        if not self._private_shm or self._shm is None:
            return 0
        found = os.statvfs(SHARED_MEMORY)
        self._devices.discard(self._shm)  # all of it is counted here
        return (found.f_blocks - found.f_bfree) * found.f_frsize


def _devices() -> Iterator[int]:
    """Yield the devices of files in memory: the kernel's own one, and /dev/shm."""
    try:
        descriptor = os.memfd_create("sfusion")
        yield os.fstat(descriptor).st_dev
        os.close(descriptor)
    except OSError:  # an old kernel
        pass
    if (shm := _device(SHARED_MEMORY)) is not None:
        yield shm


def _device(path: str) -> int | None:
    try:
        return os.stat(path).st_dev
    except OSError:
        return None


def _resident(pid: int) -> tuple[int, int]:
    """Return the private and the shared memory of a process, in which pages of files do not count."""
    found = dict(_RESIDENT.findall(read(f"/proc/{pid}/status")))
    return int(found.get("Anon", 0)) * 1024, int(found.get("Shmem", 0)) * 1024


def _proportional(pid: int, default: int) -> int:
    """Return the private memory of a process, with pages divided among the processes that share them since a fork."""
    for line in read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return default
