"""One process at a time in a folder that several commands may write to."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO


def lock_folder(folder: Path, name: str = ".lock", *, wait: bool = True) -> BinaryIO:
    """Make the folder, and return a file of this name in it that keeps other processes out while it is open.

    Raises BlockingIOError if another one is there already and it shall not wait. Systems and file systems without such
    locks keep nobody out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = (folder / name).open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except ImportError:
        pass
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.close()
            raise BlockingIOError(error.errno, "it is in use", str(folder)) from None
    return file
