"""The directories of which each request has its own, and what programs must still find beneath the machine's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping

TMP, HOME = "/tmp", "/root"
"""As in the container of the real server, which runs programs as root."""


def private_directories() -> list[str]:
    """Return the directories that a request gets its own of, where namespaces are available."""
    return [TMP, *([HOME] if os.path.isdir(HOME) else [])]


def beneath(path: str, directories: Iterable[str]) -> bool:
    return any(path == directory or path.startswith(directory + os.sep) for directory in directories)


def needed_directories(search_path: str, env: Mapping[str, str], *more: str) -> list[str]:
    """Return the directories beneath the private ones that programs read: this Python and what the variables name."""
    named = [sys.prefix, sys.base_prefix, *sys.path, *more, *_installations(search_path)]
    for text in (search_path, *env.values()):
        named += text.split(os.pathsep)
    kept: list[str] = []
    hidden = private_directories()
    absolute = [name for name in named if os.path.isabs(name)]
    for path in sorted({*map(os.path.abspath, absolute), *map(os.path.realpath, absolute)}):
        if path not in hidden and beneath(path, hidden) and not beneath(path, kept) and os.path.isdir(path):
            kept.append(path)
    return kept


def _installations(search_path: str) -> Iterator[str]:
    """Find where the links among the programs lead: a version manager installs them beneath the user's home."""
    hidden = private_directories()
    for directory in filter(os.path.isdir, search_path.split(os.pathsep)):
        for entry in os.scandir(directory):
            if entry.is_symlink() and beneath(target := os.path.realpath(entry.path), hidden):
                folder = os.path.dirname(target)
                above = os.path.dirname(folder)
                yield folder if above in hidden else above
