"""The directories of a request: writes its files there and reads the requested ones, never outside
of them."""

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

TMP, HOME = "/tmp", "/root"
"""As in the container of the real server, which runs programs as root."""


SYSTEM = {
    "bin",
    "boot",
    "dev",
    "etc",
    "gnu",
    "nix",
    "opt",
    "proc",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
}
SYSTEM |= {"lib", "lib32", "lib64", "libx32"}
"""The directories of the machine that programs see in a namespace, read-only."""


def private_directories() -> list[str]:
    """Return the directories that a request gets its own of, where namespaces are available."""
    return [TMP, *([HOME] if os.path.isdir(HOME) else [])]


def hidden_directories(*, network: bool) -> list[str]:
    """Return the directories of the machine that programs do not see in a namespace.

    Name servers may be found in /run, which is not hidden if programs use the network.
    """
    with os.scandir("/") as entries:
        found = [
            entry.path
            for entry in entries
            if entry.name not in SYSTEM and entry.is_dir(follow_symlinks=False)
        ]
    more = filter(os.path.isdir, ["/var/tmp", *([] if network else ["/run"])])
    return [*sorted(set(found) - {TMP, HOME}), *more]


def beneath(path: str, directories: Iterable[str]) -> bool:
    return any(
        path == directory or path.startswith(directory + os.sep) for directory in directories
    )


def needed_directories(
    search_path: str, env: Mapping[str, str], hidden: Sequence[str]
) -> list[str]:
    """Return the directories beneath the hidden ones that programs read: this Python and what the
    variables name."""
    named = [sys.prefix, sys.base_prefix, *_installations(search_path, hidden)]
    for text in (search_path, *env.values()):
        named += text.split(os.pathsep)
    kept: list[str] = []
    absolute = [name for name in named if os.path.isabs(name)]
    for path in sorted({*map(os.path.abspath, absolute), *map(os.path.realpath, absolute)}):
        if (
            path not in hidden
            and beneath(path, hidden)
            and not beneath(path, kept)
            and os.path.isdir(path)
        ):
            kept.append(path)
    return kept


def _installations(search_path: str, hidden: Sequence[str]) -> Iterator[str]:
    """Find where the links among the programs lead: a version manager installs them beneath the
    user's home."""
    for directory in filter(os.path.isdir, search_path.split(os.pathsep)):
        for entry in os.scandir(directory):
            if entry.is_symlink() and beneath(target := os.path.realpath(entry.path), hidden):
                folder = os.path.dirname(target)
                above = os.path.dirname(folder)
                yield folder if above in hidden else above


logger = logging.getLogger("sfusion.fakes.sandbox.executors.python")

SKIPPED = "IGNORE_THIS_FILE"
"""The real server skips files with this in their name."""
MOST_FILES, MOST_STEPS, MOST_BYTES = 2_000, 20_000, 256 * 2**20
"""Of all files of a request together, which are in memory and written one by one; the real server
has no bound. Steps are the directories in their names, each of which is made or looked up."""
MOST_LINKS = 40
"""The kernel follows no more in one path."""


class RefusedError(Exception):
    """Raised for a file name that leads out of the directories of the request, and for an answer
    that is too large."""


def make_room() -> tuple[str, int]:
    """Make a directory for a server; return it with a descriptor that locks it while any process
    has it open."""
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
            os.mkdir(directory)
            os.chmod(directory, 0o1777 if point == TMP else 0o700)
            for path in needed:
                if beneath(path, [point]):
                    os.makedirs(directory + path.removeprefix(point))
        # Its parent is writable, so that the program may remove its own work directory.
        self.folder = tempfile.mkdtemp(
            prefix="tmp", dir=self._root + TMP if private else self.outer
        )
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
        """Give what the server has written to the user of the programs; only before any of them has
        run."""
        waiting = [self.folder] if self.user is not None else []
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
        """Write the files of the request; their base64 may contain foreign characters but must have
        a valid length."""
        kept = {
            name: content
            for name, content in files.items()
            if content is not None and SKIPPED not in name
        }
        size = sum(map(len, kept.values())) * 3 // 4
        if size > MOST_BYTES:
            raise RefusedError(
                f"refused: {len(kept):,} files with {size:,} bytes; a request may have "
                f"{MOST_BYTES:,}"
            )
        self.refuse_escapes(kept)
        for name, content in kept.items():
            path = self._root + _without_climbing(os.path.join(self.cwd, name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(base64.b64decode(content))
            path = os.path.normpath(path)
            while (
                self.user is not None and not beneath(path, [self.folder]) and path not in self._own
            ):
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
        """Return where the server finds a file of the program; None if there is none, or a link
        leads outside."""
        path = self._follow_links(os.path.abspath(os.path.join(self.cwd, name)))
        if not beneath(path, self.writable):
            logger.warning("refused to fetch %r: it is a link out of the work directory", name)
            return None
        path = self._root + path
        return path if os.path.isfile(path) else None

    def refuse_escapes(self, names: Iterable[str]) -> None:
        """Raise if a name leads out of the directories of the request, which the real server would
        follow."""
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
        """Return where a path leads for programs: what is absolute in a link begins at their root,
        not at ours."""
        done, ahead = "", path.split(os.sep)[::-1]
        links = 0
        while ahead and links <= MOST_LINKS:
            part = ahead.pop()
            if part == os.pardir:
                done = os.path.dirname(done).rstrip(os.sep)
            elif part not in ("", os.curdir):
                step = f"{done}{os.sep}{part}"
                if os.path.islink(self._root + step):
                    links += 1
                    target = os.readlink(self._root + step)
                    done = "" if os.path.isabs(target) else done
                    ahead += target.split(os.sep)[::-1]
                else:
                    done = step
        return done or os.sep


def _without_climbing(path: str) -> str:
    """Leave out every ".." at the root, where it leads nowhere for programs: our root is above
    theirs."""
    kept: list[str] = []
    depth = 0
    for part in path.split(os.sep):
        if part == os.pardir and depth == 0:
            continue
        depth += -1 if part == os.pardir else part not in ("", os.curdir)
        kept.append(part)
    return os.sep.join(kept)
