"""Removes directories, however deep or locked, and those of servers that were killed."""

from __future__ import annotations

import fcntl
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import suppress

PREFIX = "sfusion-"
LOCK = "lock"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def sweep(folder: str) -> Iterator[str]:
    """Remove the directories of servers that were killed before they could do it; yield each."""
    with os.scandir(folder) as entries:
        rooms = [
            entry.path for entry in entries if entry.name.startswith(PREFIX) and _is_ours(entry)
        ]
    for room in rooms:
        with suppress(OSError):
            lock = os.open(os.path.join(room, LOCK), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(room)
                yield room
            finally:
                os.close(lock)


def _is_ours(entry: os.DirEntry[str]) -> bool:
    try:
        return (
            entry.is_dir(follow_symlinks=False)
            and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
        )
    except OSError:
        return False


def remove_tree(path: str) -> bool:
    """Remove a directory and return whether nothing is left of it.

    Directories move to the top before they are emptied, so no depth is too deep and no path too
    long.
    """
    try:
        top = _open(path)
    except OSError:
        return not os.path.lexists(path)
    names = (f".{os.getpid()}-{id(top)}-{number}" for number in itertools.count())
    try:
        waiting = [name for name in _emptied(top) if name]
        while waiting:
            name = waiting.pop()
            with suppress(OSError):
                folder = _open(name, top)
                try:
                    waiting += list(_moved(_emptied(folder), folder, top, names))
                finally:
                    os.close(folder)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    with suppress(OSError):
        os.rmdir(path)
    return not os.path.lexists(path)


def _open(name: str, parent: int | None = None) -> int:
    """Open a directory, even if a program removed its permissions."""
    try:
        found = os.open(name, _DIRECTORY, dir_fd=parent)
        if os.fstat(found).st_mode & stat.S_IRWXU == stat.S_IRWXU:
            return found
        os.fchmod(found, stat.S_IRWXU)
        return found
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)


def _emptied(folder: int) -> list[str]:
    """Remove the files of a directory; return the names of its directories."""
    with os.scandir(folder) as entries:
        listed = list(entries)
    below = []
    for entry in listed:
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return below


def _moved(below: list[str], folder: int, top: int, names: Iterator[str]) -> Iterator[str]:
    for name in below:
        new = next(names)
        with suppress(OSError):
            try:
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
            except PermissionError:
                os.close(_open(name, folder))  # with permissions again
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
            yield new
