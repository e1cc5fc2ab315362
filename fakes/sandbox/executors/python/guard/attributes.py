"""Changes permissions and times of files for programs that may not do so themselves, in their directories only.

The kernel hands these calls over here (seccomp's user notification). They are carried out on the file that was found,
by its descriptor, and never by the program itself afterwards: it could have put another file in its place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from .seccomp import CALLS

RECEIVE, SEND, IS_VALID = 0xC0502100, 0xC0182101, 0x40082102
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_RESPONSE = struct.Struct("=QqiI")
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _AT_EMPTY_PATH = -100, 0x100, 0x1000
_UTIME_NOW, _UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
_LONGEST_PATH = 4096

_Arguments = tuple[int, ...]


class Attributes:
    """Handles the calls of one program."""

    def __init__(self, listener: int, directories: Sequence[str], user: int | None) -> None:
        """Allow changes to files beneath `directories`; as root, only to those of `user`."""
        self.listener = listener
        self._directories = tuple(directory + os.sep for directory in directories)
        self._roots = tuple(directories)
        self._user = user
        self._names = {number: name for name, number in CALLS[os.uname().machine].items()}

    def handle(self) -> None:
        """Handle one call, if its process still waits for it."""
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self.listener, RECEIVE, buffer)
        except OSError:  # it was killed
            return
        number, pid, _, call, _, _, *arguments = _NOTIFICATION.unpack(buffer)
        code = 0
        try:
            self._do(self._names[call], _Caller(pid, lambda: self._check(number)), tuple(arguments))
        except OSError as exc:
            code = exc.errno or errno.EPERM
        except (OverflowError, ValueError):  # an address or a time that is none
            code = errno.EINVAL
        with suppress(OSError):
            fcntl.ioctl(self.listener, SEND, _RESPONSE.pack(number, 0, -code, 0))

    def _check(self, number: int) -> None:
        fcntl.ioctl(self.listener, IS_VALID, struct.pack("=Q", number))

    def _do(self, name: str, caller: _Caller, given: _Arguments) -> None:
        here = _AT_FDCWD & 0xFFFFFFFF
        follow_all = 0
        match name:
            case "chmod":
                self._chmod(caller, here, given[0], follow_all, given[1])
            case "fchmod":
                self._chmod(caller, given[0], 0, _AT_EMPTY_PATH, given[1])
            case "fchmodat":
                self._chmod(caller, given[0], given[1], follow_all, given[2])
            case "fchmodat2":
                self._chmod(caller, given[0], given[1], given[3], given[2])
            case "utime":
                self._utime(caller, here, given[0], follow_all, _whole_seconds(caller, given[1]))
            case "utimes":
                self._utime(caller, here, given[0], follow_all, _microseconds(caller, given[1]))
            case "futimesat":
                self._utime(caller, given[0], given[1], follow_all, _microseconds(caller, given[2]))
            case "utimensat":
                flags = given[3] | (0 if given[1] else _AT_EMPTY_PATH)
                self._utime(caller, given[0], given[1], flags, _nanoseconds(caller, given[2]))

    def _chmod(self, caller: _Caller, folder: int, path: int, flags: int, mode: int) -> None:
        self._change(caller, folder, path, flags, lambda it: os.chmod(it, mode & 0o7777))

    def _utime(self, caller: _Caller, folder: int, path: int, flags: int, times: list[int] | None) -> None:
        def change(it: str) -> None:
            if times is None:
                os.utime(it)
                return
            found = os.stat(it)
            old, now = (found.st_atime_ns, found.st_mtime_ns), time.time_ns()
            new = [{_UTIME_OMIT: old[at], _UTIME_NOW: now}.get(times[at], times[at]) for at in (0, 1)]
            os.utime(it, ns=(new[0], new[1]))

        self._change(caller, folder, path, flags, change)

    def _change(self, caller: _Caller, folder: int, path: int, flags: int, change: Callable[[str], None]) -> None:
        opened = caller.open(folder, path, flags)
        try:
            caller.check()
            name = f"/proc/self/fd/{opened}"
            place = os.readlink(name)
            if place not in self._roots and not place.startswith(self._directories):
                raise PermissionError(errno.EPERM, "outside its directories")
            if self._user is not None and os.stat(name).st_uid != self._user:
                raise PermissionError(errno.EPERM, "not its own")
            change(name)
        finally:
            os.close(opened)


class _Caller:
    """The thread that made the call, and waits."""

    def __init__(self, pid: int, check: Callable[[], None]) -> None:
        """`check` raises if it waits no longer, so that its process id may be another's."""
        self._pid = pid
        self.check = check

    def open(self, folder: int, path: int, flags: int) -> int:
        """Return a descriptor of the file that it names."""
        follow = os.O_NOFOLLOW if flags & _AT_SYMLINK_NOFOLLOW else 0
        base = f"/proc/{self._pid}/cwd" if _signed(folder) == _AT_FDCWD else f"/proc/{self._pid}/fd/{_signed(folder)}"
        if flags & _AT_EMPTY_PATH and not path:
            return os.open(base, os.O_PATH | os.O_CLOEXEC)
        text = self.read(path, _LONGEST_PATH, short=True).partition(b"\0")[0].decode("utf-8", "surrogateescape")
        if not text:
            if not flags & _AT_EMPTY_PATH:
                raise FileNotFoundError(errno.ENOENT, "an empty path")
            return os.open(base, os.O_PATH | os.O_CLOEXEC)
        for mine in ("/proc/self/", "/proc/thread-self/"):
            if text.startswith(mine):
                text = f"/proc/{self._pid}/{text.removeprefix(mine)}"
        return os.open(os.path.join(base, text), os.O_PATH | os.O_CLOEXEC | follow)

    def read(self, address: int, size: int, *, short: bool = False) -> bytes:
        """Read its memory; a path may end before the size, and the memory behind it."""
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.check()
            if short:
                size = min(size, _LONGEST_PATH - address % _LONGEST_PATH + _LONGEST_PATH)
            data = os.pread(memory, size, address)
        finally:
            os.close(memory)
        if not short and len(data) < size:
            raise OSError(errno.EFAULT, "not its memory")
        return data


def _signed(value: int) -> int:
    return int(struct.unpack("=i", struct.pack("=I", value & 0xFFFFFFFF))[0])


def _whole_seconds(caller: _Caller, address: int) -> list[int] | None:
    if not address:
        return None
    return [seconds * 10**9 for seconds in struct.unpack("=2q", caller.read(address, 16))]


def _microseconds(caller: _Caller, address: int) -> list[int] | None:
    if not address:
        return None
    first, more, second, rest = struct.unpack("=4q", caller.read(address, 32))
    return [first * 10**9 + more * 1000, second * 10**9 + rest * 1000]


def _nanoseconds(caller: _Caller, address: int) -> list[int] | None:
    if not address:
        return None
    first, more, second, rest = struct.unpack("=4q", caller.read(address, 32))
    return [
        part if part in (_UTIME_NOW, _UTIME_OMIT) else seconds * 10**9 + part
        for seconds, part in ((first, more), (second, rest))
    ]
