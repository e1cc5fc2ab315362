"""Writes the files of a request into its work directory and reads the requested ones, never outside of it."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType

logger = logging.getLogger("sfusion.fakes.sandbox.executors.python")

SKIPPED = "IGNORE_THIS_FILE"
"""The real server skips files with this in their name."""


class EscapeRefusedError(Exception):
    """Raised for a file name that leads out of the work directory."""


class TooMuchToFetchError(Exception):
    """Raised if the requested files are too large."""


class WorkDirectory:
    """The directories of one request: for the program, and for its temporary files."""

    def __init__(self, base: str) -> None:
        """Create them below `base`."""
        # The outer one is writable, so that the program may remove its own work directory.
        self.outer = tempfile.mkdtemp(prefix="run-", dir=base)
        self.cwd = tempfile.mkdtemp(prefix="tmp", dir=self.outer)
        self.scratch = os.path.join(self.outer, "scratch")
        os.mkdir(self.scratch)

    async def __aenter__(self) -> WorkDirectory:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Remove everything, in a thread because a program may have made a hundred thousand files."""
        await asyncio.to_thread(remove_tree, self.outer)

    def write_source(self, code: str, *, suffix: str | None, name: str | None) -> str:
        """Write the program to a file and return its path."""
        if name is not None:
            path = os.path.join(self.cwd, name)
            Path(path).write_text(code, encoding="utf-8", newline="")
            return path
        with tempfile.NamedTemporaryFile(
            "w", dir=self.cwd, suffix=suffix, delete=False, encoding="utf-8", newline=""
        ) as file:
            file.write(code)
        return file.name

    def restore(self, files: Mapping[str, str | None]) -> None:
        """Write the files of the request; their base64 may contain foreign characters but must have a valid length."""
        for name, content in files.items():
            if content is None or SKIPPED in name:
                continue
            refuse_escapes([name])
            path = os.path.join(self.cwd, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(content))

    def fetch(self, names: Iterable[str], limit: int) -> dict[str, str]:
        """Read the requested files that exist; a link that leads outside counts as missing."""
        inside = os.path.realpath(self.outer) + os.sep
        found: dict[str, str] = {}
        total = 0
        for name in names:
            path = os.path.abspath(os.path.join(self.cwd, name))
            if name in found or not os.path.isfile(path):
                continue
            if not os.path.realpath(path).startswith(inside):
                logger.warning("refused to fetch %r: it is a link out of the work directory", name)
                continue
            total += os.path.getsize(path)
            if total > limit:
                raise TooMuchToFetchError(f"the files to fetch are larger than {limit} bytes")
            found[name] = base64.b64encode(Path(path).read_bytes()).decode("ascii")
        return found


def refuse_escapes(names: Iterable[str]) -> None:
    """Raise if a name leads out of the work directory. The real server would follow it."""
    for name in names:
        if os.path.isabs(name) or os.path.normpath(name).split(os.sep)[0] == os.pardir:
            logger.warning("refused the file name %r: it leaves the work directory", name)
            raise EscapeRefusedError(f"refused: the file name {name!r} leaves the work directory")


def remove_tree(path: str) -> None:
    """Remove a directory, even if a program removed its permissions."""
    try:
        shutil.rmtree(path)
    except OSError:
        for folder, below, _ in os.walk(path):
            for name in below:
                where = os.path.join(folder, name)
                if not os.path.islink(where):
                    with suppress(OSError):
                        os.chmod(where, stat.S_IRWXU)
        shutil.rmtree(path, ignore_errors=True)
