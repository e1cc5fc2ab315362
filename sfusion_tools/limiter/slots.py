"""The slots of a machine's limiter: one lock of the kernel for each permit, in a file.

Processes that name the same limiter open the same file. A process that holds the kernel's lock on
the byte of a slot has that permit. Nobody serves anybody, and no process takes in more than a
number or a short JSON text from another. When a process dies, however it dies, the kernel gives its
locks back.

The locks are POSIX record locks. They belong to a process, so a forked child has none of them, and
the process must open the file only once: closing any descriptor of it gives up all of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import stat
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sfusion_tools.errors import ConfigError, LimiterError, ProtocolMismatch
from sfusion_tools.limiter.pace import Bucket, Width
from sfusion_tools.limiter.settings import LimiterSettings

FOLDER = "SFUSION_LIMITER_DIR"
"""The variable that names another folder: one that several containers of a user share, for
example."""

SUFFIX = ".slots"
"""Of the files in it."""

FORMAT = 1
"""Increases whenever the file or the meaning of its locks changes: processes may run different
versions of sfusion."""

MOST_SLOTS = 100_000
"""Chosen: far more than one machine can have requests in flight, and still quick to look through
if the file was damaged."""

# What is locked: a byte for each of these purposes, then one for each slot.
_GATE = 0  # exclusively, by the process that looks for slots, for less than a millisecond
_ATTACHED = 1  # shared by all processes that use the limiter, as long as they live
_WAITING = 2  # shared by all processes in which callers wait
_FIRST_SLOT = 16  # chosen: leaves room for more purposes

# What is written: the rules, the last release, and who holds each slot. The sizes, in bytes, are
# chosen: the rules and the release fill a page of memory.
_RULES_SIZE = 4096 - 64
_RELEASE_AT = _RULES_SIZE
_RELEASE_SIZE = 64
_HOLDERS_AT = 4096
_HOLDER_SIZE = 16
_READ_AT_ONCE = 8192
"""Bytes that hold the rules and 256 holders (chosen)."""


def slot_folder() -> Path:
    """Return the folder of this user's limiters; it is made if there is none."""
    folder = _folder_path()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise ConfigError(
            f"limiter: host: the folder {folder} cannot be used: {error.strerror}; set {FOLDER}"
        ) from error
    if found.st_uid != os.getuid():
        raise ConfigError(f"limiter: host: {folder} belongs to another user; set {FOLDER}")
    if found.st_mode & 0o077:
        raise ConfigError(f"limiter: host: others may use {folder}; {_way_out(folder, found)}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"limiter: host: {folder} cannot be written; set {FOLDER}")
    return folder


def _way_out(folder: Path, found: os.stat_result) -> str:
    """Say what to do about a folder that others may use: they may need one that holds more than
    limiters, such as /tmp."""
    try:
        ours = all(path.suffix == SUFFIX for path in folder.iterdir())
    except OSError:
        ours = False
    if ours and not found.st_mode & stat.S_ISVTX:
        return f"run `chmod 700 {shlex.quote(str(folder))}`, or set {FOLDER}"
    return f"set {FOLDER} to a folder of its own, such as {folder / f'sfusion-{os.getuid()}'}"


def _folder_path() -> Path:
    chosen = os.environ.get(FOLDER)
    if chosen:
        return Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return Path(runtime, "sfusion")
    return Path(tempfile.gettempdir(), f"sfusion-{os.getuid()}")


def slot_path(name: str) -> Path:
    """Return the file of the limiter with this name."""
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return slot_folder() / f"{digest}{SUFFIX}"


def check_size(settings: LimiterSettings) -> None:
    """Refuse a limit that a file has no room for."""
    if settings.rate_limit > MOST_SLOTS:
        raise ConfigError(
            f"limiter: host has at most {MOST_SLOTS} permits, found rate_limit "
            f"{settings.rate_limit}"
        )


@dataclass(frozen=True, slots=True)
class MachineState:
    """The limiter of a machine at one moment, as far as any process can see it."""

    rate_limit: int
    width: int
    """How many permits may be out now: rate_limit, or fewer while an adaptive one is narrowed."""
    in_use: int
    holders: dict[str, int]
    """Permits by process id."""
    waiting: bool
    """Do callers wait in some process?"""
    per_second: float | None
    adaptive: bool


class Rules:
    """What all processes of a limiter agree on: settings, width and tokens. A text in the file."""

    def __init__(self, settings: LimiterSettings, now: float) -> None:
        self.settings = settings
        self.span = settings.rate_limit
        """The slots from here on are free. More than rate_limit for a while after a decrease."""
        self.changed = False
        """Have they changed since they were read or written?"""
        self._width = Width(settings.rate_limit)
        self._bucket: Bucket | None = None
        self._fill_bucket(now)

    @property
    def width(self) -> int:
        """How many permits may be out."""
        return self._width.permits if self.settings.adaptive else self.settings.rate_limit

    def configure(self, settings: LimiterSettings, now: float) -> None:
        """Change the settings; permits that are out stay out."""
        before = self.settings
        self.changed = True
        self.settings = settings
        self.span = max(self.span, settings.rate_limit)
        self._width.set_ceiling(settings.rate_limit)
        if (settings.per_second, settings.burst) != (before.per_second, before.burst):
            self._fill_bucket(now)

    def take_token(self, now: float) -> bool:
        """Count the start of an attempt; False if it has to wait."""
        if self._bucket is None:
            return True
        self.changed = True
        return self._bucket.take(now)

    def adapt(self, now: float, succeeded: int, throttled: int) -> None:
        """Follow how attempts ended."""
        if not self.settings.adaptive or not (succeeded or throttled):
            return
        self.changed = True
        self._width.succeeded(succeeded)
        if throttled:
            self._width.throttled(now)

    def text(self) -> bytes:
        """Return the rules as they are written."""
        state: dict[str, Any] = {
            "format": FORMAT,
            "settings": asdict(self.settings),
            "span": self.span,
        }
        if self.settings.adaptive:
            state["width"] = self._width.value
            # JSON has no infinity; a cooldown in the past is none.
            state["cooldown_until"] = max(0.0, self._width.cooldown_until)
        if self._bucket is not None:
            state["tokens"] = self._bucket.tokens
            state["filled_at"] = self._bucket.filled_at
        return json.dumps(state).encode()

    @classmethod
    def read(cls, text: bytes) -> Rules:
        """Return the rules of a text; raise ValueError, TypeError or KeyError if it is none."""
        state = json.loads(text)
        if state["format"] != FORMAT:
            raise ProtocolMismatch(
                f"this limiter is used by another version of sfusion (format {state['format']}, "
                f"here {FORMAT}): use one version in all processes of a machine"
            )
        rules = cls(LimiterSettings(**state["settings"]), float(state.get("filled_at", 0.0)))
        rules.span = int(state["span"])
        if not rules.settings.rate_limit <= rules.span <= MOST_SLOTS:
            raise ValueError(f"span is {rules.span}")
        if rules.settings.adaptive:
            rules._width.value = float(state["width"])
            rules._width.cooldown_until = float(state["cooldown_until"])
        if rules._bucket is not None:
            rules._bucket.tokens = float(state["tokens"])
        return rules

    def _fill_bucket(self, now: float) -> None:
        rate = self.settings.per_second
        self._bucket = None if rate is None else Bucket(rate, self.settings.burst, now=now)


class SlotFile:
    """The file of one limiter, opened once by this process.

    All methods but ``release``, ``has_new_release`` and ``close`` belong inside ``gate``, where
    only one thread at a time may be.
    """

    def __init__(self, path: Path, predecessor: SlotFile | None = None) -> None:
        self.path = path
        self.predecessor = predecessor
        """The file that was removed, as long as slots of it are held."""
        self.mine: set[int] = set()
        """The slots that this process holds."""
        self.is_attached = False
        """Does this process use the limiter, and not only look at it?"""
        self.announces_waiting = False
        """Do other processes know that callers wait in this one?"""
        self._releases = 0
        self._page = b""
        self._rules: Rules | None = None
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(path, flags, 0o600)
        found = os.fstat(self._file)
        self._identity = found.st_dev, found.st_ino

    @property
    def is_current(self) -> bool:
        """False if the file was removed, and perhaps made again: others do not look at this one."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self._identity

    @contextmanager
    def gate(self) -> Iterator[bool]:
        """Keep other processes from looking for slots; False if one of them does just now."""
        entered = self._lock(_GATE)
        try:
            yield entered
        finally:
            if entered:
                self._unlock(_GATE)

    def attach(self, settings: LimiterSettings, now: float) -> Rules:
        """Return the rules in force. The first process that uses the limiter brings them."""
        if not self.is_attached:
            if not self._is_locked_elsewhere(_ATTACHED):
                rules = Rules(settings, now)
                rules.changed = True
                self.write(rules)
            self._lock_shared(_ATTACHED)
            self.is_attached = True
        return self.read()

    def read(self) -> Rules:
        """Read the file; this costs one call of the system, and little if the rules are known."""
        before = self._page[:_RULES_SIZE]
        self._page = os.pread(self._file, _READ_AT_ONCE, 0)
        text = self._page[:_RULES_SIZE]
        if self._rules is None or self._rules.changed or text != before:
            self._rules = None
            self._rules = self._parse(text)
        return self._rules

    def _parse(self, text: bytes) -> Rules:
        try:
            return Rules.read(text.rstrip(b" \n\0"))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise LimiterError(
                f"{self.path} holds no rules of a limiter ({error}); "
                "end the processes that use it and remove the file"
            ) from error

    def write(self, rules: Rules) -> None:
        """Write the rules down if they have changed."""
        if rules.changed:
            os.pwrite(self._file, rules.text().ljust(_RULES_SIZE - 1) + b"\n", 0)
            rules.changed = False
            self._rules = None

    def is_used(self) -> bool:
        """Is any process attached?"""
        return self.is_attached or self._is_locked_elsewhere(_ATTACHED)

    def others_wait(self) -> bool:
        """Do callers wait in another process?"""
        return self._is_locked_elsewhere(_WAITING, shared=self.announces_waiting)

    def announce_waiting(self, waiting: bool) -> None:
        """Let other processes know whether callers wait in this one.

        Outside of the gate, only that none does.
        """
        if waiting and not self.announces_waiting:
            self._lock_shared(_WAITING)
        elif self.announces_waiting and not waiting:
            self._unlock(_WAITING)
        self.announces_waiting = waiting

    def take(self, rules: Rules, wanted: int, now: float) -> list[int]:
        """Take up to so many free slots; fewer if the rules, or other processes, leave no more."""
        room = wanted
        if rules.span > rules.width:
            # After a decrease slots above the limit may still be held: count what is out.
            room = min(wanted, rules.width - self._count(rules))
        taken: list[int] = []
        held_before = self._held_before(rules.width)
        for slot in self._from_last_release(rules.width):
            if len(taken) >= room:
                break
            if slot in self.mine or slot in held_before:
                continue
            if not self._lock(_FIRST_SLOT + slot):
                continue
            if not rules.take_token(now):
                self._unlock(_FIRST_SLOT + slot)
                break
            self.mine.add(slot)
            taken.append(slot)
        self._sign(taken)
        return taken

    def release(self, slot: int) -> None:
        """Give a slot back. This takes no lock of ours, so a finaliser may call it in any thread.

        A slot stays in ``mine`` until the kernel's lock is gone, so that no other thread takes it
        in between and loses it to this release.
        """
        if self._file < 0:
            return
        self._unlock(_FIRST_SLOT + slot)
        self.mine.discard(slot)
        self._releases += 1
        note = f"{slot} {os.getpid()} {self._releases}".encode()
        # Without room for this note others find the slot a little later.
        with suppress(OSError):
            os.pwrite(self._file, note.ljust(_RELEASE_SIZE), _RELEASE_AT)

    @property
    def last_release(self) -> bytes:
        """The note about the last release when the file was read: another one after each."""
        return self._page[_RELEASE_AT : _RELEASE_AT + _RELEASE_SIZE]

    def has_new_release(self, since: bytes) -> bool:
        """Has any process released a slot since this note?"""
        return os.pread(self._file, _RELEASE_SIZE, _RELEASE_AT) != since

    def state(self) -> MachineState:
        rules = self.read()
        holders: Counter[str] = Counter()
        for slot in range(rules.span):
            if slot in self.mine:
                holders[str(os.getpid())] += 1
            elif self._is_locked_elsewhere(_FIRST_SLOT + slot):
                holders[self._signature(slot)] += 1
        return MachineState(
            rate_limit=rules.settings.rate_limit,
            width=rules.width,
            in_use=holders.total(),
            holders=dict(holders),
            waiting=self.announces_waiting or self.others_wait(),
            per_second=rules.settings.per_second,
            adaptive=rules.settings.adaptive,
        )

    def close(self) -> None:
        """Close the file, which gives back all slots of this process; in a forked child, none."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _held_before(self, width: int) -> set[int]:
        """Return the slots that are held in a file that was removed, which is closed if none is.

        Only processes that had opened that file know of them.
        """
        before = self.predecessor
        if before is None:
            return set()
        held = before._held_before(width)
        for slot in range(width):
            if slot in before.mine or before._is_locked_elsewhere(_FIRST_SLOT + slot):
                held.add(slot)
        if not held and not before.mine:
            before.close()
            self.predecessor = None
        return held

    def _count(self, rules: Rules) -> int:
        """Count the slots that are held; note if those above the limit are free again."""
        count = 0
        highest = 0
        for slot in range(rules.span):
            if slot in self.mine or self._is_locked_elsewhere(_FIRST_SLOT + slot):
                count += 1
                highest = slot + 1
        span = max(highest, rules.settings.rate_limit)
        rules.changed |= span != rules.span
        rules.span = span
        return count

    def _from_last_release(self, width: int) -> Iterator[int]:
        """Yield all slots, beginning where one was released last: that one is probably free."""
        first = 0
        slot = self.last_release.partition(b" ")[0]
        if slot.isdigit():
            first = int(slot[:9]) % width
        yield from range(first, width)
        yield from range(first)

    def _sign(self, taken: list[int]) -> None:
        """Write down who holds these slots; if that is not possible, give them back."""
        text = str(os.getpid()).encode().ljust(_HOLDER_SIZE - 1) + b"\n"
        try:
            for slot in taken:
                place = _HOLDERS_AT + slot * _HOLDER_SIZE
                if self._page[place : place + _HOLDER_SIZE] != text:
                    os.pwrite(self._file, text, place)
        except OSError:
            for slot in taken:
                self.release(slot)
            raise

    def _signature(self, slot: int) -> str:
        text = os.pread(self._file, _HOLDER_SIZE, _HOLDERS_AT + slot * _HOLDER_SIZE).strip()
        return text.decode() if text.isdigit() else "unknown"

    def _lock(self, byte: int) -> bool:
        """Lock a byte for this process alone; False if another process has locked it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except (BlockingIOError, PermissionError):
            # The two errors that POSIX allows for a lock that is held.
            return False
        return True

    def _lock_shared(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, byte)

    def _unlock(self, byte: int) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    def _is_locked_elsewhere(self, byte: int, *, shared: bool = False) -> bool:
        """Try to lock a byte; then restore what this process had, which is ``shared`` or nothing.

        Nobody notices: whoever locks such a byte has passed the gate, and slots are tried only by
        those.
        """
        if not self._lock(byte):
            return True
        if shared:
            self._lock_shared(byte)
        else:
            self._unlock(byte)
        return False
