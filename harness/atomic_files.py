"""Files that are complete or absent, and folders for one process at a time.

A file is written beside its name and then renamed.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from .errors import CannotWrite

_numbers = itertools.count()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the system into CannotWrite, which names the path."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}") from error


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write UTF-8 text; an existing file stays until the new one is complete. Raises CannotWrite.

    A symbolic link is followed. A device or a pipe, such as /dev/stdout, is written directly.
    """
    parts = [text] if isinstance(text, str) else text
    with writing(path):
        if _is_special(path):
            with path.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(parts)
            return
        target = path.resolve()
        unfinished = _beside(target)
        try:
            with unfinished.open("x", encoding="utf-8", newline="\n") as file:
                file.writelines(parts)
            os.replace(unfinished, target)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise


def check_writable(path: Path) -> None:
    """Raise OSError unless ``write_file`` could replace or create this file.

    An existing one stays as it is.
    """
    if _is_special(path):
        return
    probe = _beside(path.resolve())
    probe.touch(exist_ok=False)
    probe.unlink()


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _beside(target: Path) -> Path:
    # Short, because the name of the file may be as long as a name can be.
    return target.with_name(f".sfusion-{os.getpid()}-{next(_numbers)}.part")


def lock_folder(folder: Path, name: str = ".lock", *, wait: bool = True) -> BinaryIO:
    """Make the folder, and return a file in it that keeps other processes out while it is open.

    Raises BlockingIOError if another one is there already and ``wait`` is False. Systems and file
    systems without such locks keep nobody out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / name).open("ab")
    try:
        import fcntl

        how = fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB
        fcntl.flock(file, how)
    except ImportError:
        pass
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.close()
            raise BlockingIOError(error.errno, "it is in use", str(folder)) from None
    return file
