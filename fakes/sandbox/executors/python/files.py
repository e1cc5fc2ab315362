"""The directories of a request.

Its files are written there and the requested ones read, never outside of them.
"""

from __future__ import annotations

import base64
import fcntl
import logging
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from .guard.trees import LOCK, PREFIX, remove_tree

TMP = "/tmp"
HOME = "/root"
"""As in the container of the real server, which runs programs as root."""

# fmt: off
SYSTEM = {
    "bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc",
    "run", "sbin", "sys", "usr", "var",
}
# fmt: on
"""The directories of the machine that programs see in a namespace, read-only."""


def private_directories() -> list[str]:
    """Return the directories that a request gets its own of, where namespaces are available."""
    return [TMP, HOME] if os.path.isdir(HOME) else [TMP]


def root_entries() -> list[str]:
    """Return what is in `/`."""
    return sorted(os.path.join("/", name) for name in os.listdir("/"))


def hidden_directories(*, network: bool) -> list[str]:
    """Return the directories of the machine that programs do not see in a namespace.

    Name servers may be found in /run, which is not hidden if programs use the network.
    """
    found = set()
    with os.scandir("/") as entries:
        for entry in entries:
            if entry.name not in SYSTEM and entry.is_dir(follow_symlinks=False):
                found.add(entry.path)
    hidden = sorted(found - {TMP, HOME})
    for path in ("/var/tmp",) if network else ("/var/tmp", "/run"):
        if os.path.isdir(path):
            hidden.append(path)
    return hidden


def hidden_files(env: Mapping[str, str]) -> list[str]:
    """Return the files directly in `/`, which look empty in a namespace.

    Those that the variables name stay as they are.
    """
    named: set[str] = set()
    for text in env.values():
        named.update(text.split(os.pathsep))
    with os.scandir("/") as entries:
        files = [entry.path for entry in entries if not entry.is_dir() and not entry.is_symlink()]
    return sorted(set(files) - named)


def beneath(path: str, directories: Iterable[str]) -> bool:
    """Is a path one of these directories, or inside one?"""
    for directory in directories:
        if path == directory or path.startswith(directory + os.sep):
            return True
    return False


def needed_directories(
    search_path: str, env: Mapping[str, str], hidden: Sequence[str]
) -> list[str]:
    """Return the directories beneath the hidden ones that programs read.

    These are this Python's, and those that the variables name.
    """
    named = [sys.prefix, sys.base_prefix, *_installations(search_path, hidden)]
    for text in (search_path, *env.values()):
        named += text.split(os.pathsep)
    paths = set()
    for name in named:
        if os.path.isabs(name):
            paths.add(os.path.abspath(name))
            paths.add(os.path.realpath(name))

    kept: list[str] = []
    for path in sorted(paths):
        is_hidden = path not in hidden and beneath(path, hidden)
        if is_hidden and not beneath(path, kept) and os.path.isdir(path):
            kept.append(path)
    return kept


def _installations(search_path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Find where the links among the programs lead.

    A version manager installs them beneath the user's home.
    """
    for directory in filter(os.path.isdir, search_path.split(os.pathsep)):
        for entry in os.scandir(directory):
            if not entry.is_symlink():
                continue
            target = os.path.realpath(entry.path)
            if beneath(target, hidden):
                folder = os.path.dirname(target)
                above = os.path.dirname(folder)
                yield folder if above in hidden else above


logger = logging.getLogger("sfusion.fakes.sandbox.executors.python")

SKIPPED = "IGNORE_THIS_FILE"
"""The real server skips files with this in their name."""
# Bounds of all files of a request together, which are in memory and written one by one. Chosen: the
# real server has none.
MOST_FILES = 2_000
MOST_STEPS = 20_000
"""The directories in their names, each of which is made or looked up."""
MOST_BYTES = 256 * 2**20
MOST_LINKS = 40
"""The kernel follows no more in one path."""


class RefusedError(Exception):
    """Raised for what a request may not have.

    That is a file name that leads out of the directories of the request, or an answer that is too
    large.
    """


def make_room() -> tuple[str, int]:
    """Make a directory for a server.

    Return it with a descriptor that locks it while any process has it open.
    """
    while True:
        room = os.path.realpath(tempfile.mkdtemp(prefix=PREFIX))
        os.chmod(room, 0o711)  # a program that runs as a user of its own passes through
        lock = os.open(os.path.join(room, LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(room, LOCK)):
            return room, lock
        os.close(lock)  # another server took it for an abandoned one in that moment


class WorkDirectory:
    """The directories of one request: for the program, and for its temporary files.

    With a private `/tmp` and home, programs know them by other names than the server: what they
    call `/tmp/x` is `outer/tmp/x` here.
    """

    def __init__(
        self,
        base: str,
        private: Sequence[str] = (),
        needed: Sequence[str] = (),
        user: int | None = None,
    ) -> None:
        """Create them below `base`; `private` are the directories that become the request's own.

        `needed` are the directories of the machine that are mounted beneath the private ones;
        `user` is the user to whom everything belongs, if it is not the server's.
        """
        self.user = user
        self.env: dict[str, str] = {}
        """The environment of the programs."""
        self.outer = tempfile.mkdtemp(prefix="run-", dir=base)
        self._root = self.outer if private else ""
        self.mounts = {point: self.outer.removeprefix(base) + point for point in private}
        """Its own directory, beneath `base`, for each of these."""
        self._own = [self.outer + point for point in private]
        for point, directory in zip(private, self._own, strict=True):
            _make_private(point, directory, needed)
        # Its parent is writable, so that the program may remove its own work directory.
        parent = self._root + TMP if private else self.outer
        self.folder = tempfile.mkdtemp(prefix="tmp", dir=parent)
        """The work directory, as the server finds it."""
        self.cwd = self.folder.removeprefix(self._root)
        """The same as programs know it."""
        self.writable = list(private) or [self.outer]
        self._reachable = list(private) or [self.cwd]
        if private:
            self.home = HOME if HOME in private else TMP
        else:
            self.home = os.path.join(self.outer, "scratch")
            os.mkdir(self.home)
        for directory in {self.outer, *self._own, self.folder, self._root + self.home}:
            self._give(directory)

    def hand_over(self) -> None:
        """Give what the server has written to the user of the programs.

        Only before any of them has run.
        """
        if self.user is None:
            return
        waiting = [self.folder]
        while waiting:
            for entry in os.scandir(waiting.pop()):
                self._give(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)

    def _give(self, path: str) -> None:
        if self.user is not None:
            os.chown(path, self.user, self.user, follow_symlinks=False)

    def remove(self) -> None:
        if not remove_tree(self.outer):
            logger.warning("could not remove all that a program left in %s", self.outer)

    def write_source(self, code: str, *, suffix: str | None, name: str | None) -> str:
        """Write the program to a file and return the path by which programs know it."""
        if name is not None:
            Path(self.folder, name).write_text(code, encoding="utf-8", newline="")
            return os.path.join(self.cwd, name)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, suffix=suffix, delete=False, encoding="utf-8", newline=""
        ) as file:
            file.write(code)
        return file.name.removeprefix(self._root)

    def restore(self, files: Mapping[str, str | None]) -> None:
        """Write the files of the request.

        Their base64 may contain foreign characters but must have a valid length.
        """
        kept: dict[str, str] = {}
        for name, content in files.items():
            if content is not None and SKIPPED not in name:
                kept[name] = content
        size = sum(map(len, kept.values())) * 3 // 4
        if size > MOST_BYTES:
            found = f"{len(kept):,} files with {size:,} bytes"
            raise RefusedError(f"refused: {found}; a request may have {MOST_BYTES:,}")
        self.refuse_escapes(kept)

        for name, content in kept.items():
            path = self._root + _without_climbing(os.path.join(self.cwd, name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(content))
            self._give_outside(os.path.normpath(path))

    def _give_outside(self, path: str) -> None:
        """Give a file outside the work directory, and the directories above it, to the user."""
        if self.user is None:
            return
        while not beneath(path, [self.folder]) and path not in self._own:
            self._give(path)
            path = os.path.dirname(path)

    def fetch(self, names: Iterable[str], limit: int) -> dict[str, str]:
        """Read the requested files that exist; a link that leads outside counts as missing."""
        found: dict[str, str] = {}
        total = 0
        for name in names:
            if name in found:
                continue
            path = self.find(name)
            if path is None:
                continue
            total += os.path.getsize(path)
            if total > limit:
                raise RefusedError(f"the files to fetch are larger than {limit} bytes")
            found[name] = base64.b64encode(Path(path).read_bytes()).decode("ascii")
        return found

    def find(self, name: str) -> str | None:
        """Return where the server finds a file of the program.

        Return None if there is none, or if a link leads outside.
        """
        path = self._follow_links(os.path.abspath(os.path.join(self.cwd, name)))
        if not beneath(path, self.writable):
            logger.warning("refused to fetch %r: it is a link out of the work directory", name)
            return None
        path = self._root + path
        return path if os.path.isfile(path) else None

    def refuse_escapes(self, names: Iterable[str]) -> None:
        """Raise if a name leads out of the directories of the request.

        The real server would follow it.
        """
        names = list(names)
        steps = sum(name.count("/") for name in names)
        if len(names) > MOST_FILES or steps > MOST_STEPS:
            found = f"{len(names):,} files with {steps:,} directories in their names"
            raise RefusedError(
                f"refused: {found}; a request may have {MOST_FILES:,} with {MOST_STEPS:,}"
            )
        for name in names:
            # normpath keeps two slashes at the beginning, and only two.
            path = os.path.normpath(os.path.join(self.cwd, name)).replace("//", "/")
            if not beneath(path, self._reachable):
                where = " and ".join(self._reachable) if self._root else "the work directory"
                logger.warning("refused the file name %r: it leaves %s", name, where)
                raise RefusedError(f"refused: the file name {name!r} leaves {where}")

    def _follow_links(self, path: str) -> str:
        """Return where a path leads for programs.

        What is absolute in a link begins at their root, not at ours.
        """
        done = ""
        ahead = path.split(os.sep)[::-1]
        links = 0
        while ahead and links <= MOST_LINKS:
            part = ahead.pop()
            if part in ("", os.curdir):
                continue
            if part == os.pardir:
                done = os.path.dirname(done).rstrip(os.sep)
                continue
            step = f"{done}{os.sep}{part}"
            if not os.path.islink(self._root + step):
                done = step
                continue
            links += 1
            target = os.readlink(self._root + step)
            if os.path.isabs(target):
                done = ""
            ahead += target.split(os.sep)[::-1]
        return done or os.sep


def _make_private(point: str, directory: str, needed: Sequence[str]) -> None:
    """Make the directory that a request has in place of `point`, with places for what is needed."""
    os.mkdir(directory)
    os.chmod(directory, 0o1777 if point == TMP else 0o700)
    for path in needed:
        if beneath(path, [point]):
            os.makedirs(directory + path.removeprefix(point))


def _without_climbing(path: str) -> str:
    """Leave out every ".." at the root, where it leads nowhere for programs.

    Our root is above theirs.
    """
    kept: list[str] = []
    depth = 0
    for part in path.split(os.sep):
        if part == os.pardir:
            if depth == 0:
                continue
            depth -= 1
        elif part not in ("", os.curdir):
            depth += 1
        kept.append(part)
    return os.sep.join(kept)
