"""The event log: one JSON line for each call that ended, in files of this process.

It is written beside the calls. A call only queues what is to be written. A thread writes the queue
every half second, the end of a loop and of the process write what is left: formatting many lines at
once costs a third of what it costs between the steps of a call. Each process has its own files, so
that no lock is needed between processes; what is kept of all of them together is bounded.
``event_lines`` has the form of the lines.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import re
import socket
import stat
import threading
import time
from collections import deque
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sfusion_tools._loops import tells_real_time
from sfusion_tools.event_lines import LINE_OPENING
from sfusion_tools.runtime import LoopResource, LoopScope

logger = logging.getLogger(__name__)

SWITCH = "SFUSION_EVENT_LOG"
INTERVAL = 0.5
"""Seconds between two writes. Chosen: a killed process loses little, and many lines are written
together."""

MOST_QUEUED = 32 * 2**20
"""Characters that may wait while the disk does not accept them; lines beyond that are dropped.
Chosen: some 60,000 calls, and little memory beside that of a training."""

LINE = 500
"""Characters of a line, roughly: those of a call with one attempt."""

_MB = 2**20
_NAME = "events"
_SUFFIX = ".ndjson"

Facts = tuple[Any, ...]
"""What a line is made of, after the function that makes it: Callable[[str, Facts], bytes]."""
Size = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class EventLogSettings(BaseModel):
    """The key ``event_log`` of a tool config; a path alone stands for these defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(min_length=1)] = Field(
        description=(
            "`logs/events.ndjson` becomes `logs/events.HOST-PID-001.ndjson` and so "
            "on; a folder is possible too"
        )
    )
    max_file_mb: Size = Field(64.0, description="size at which a process begins a new file, in MB")
    max_total_mb: Size = Field(
        1024.0,
        description=(
            "size of all files of this path together, in MB; the oldest are deleted above it"
        ),
    )
    include: tuple[Literal["code", "output"], ...] = Field(
        (), description="`code`, `output`: also write the programs, and what they printed"
    )

    @classmethod
    def of_environment(cls) -> EventLogSettings | None:
        """Return the settings for the path in SFUSION_EVENT_LOG, if it is set."""
        path = os.environ.get(SWITCH)
        return cls(path=path) if path else None


def this_worker() -> str:
    """Return the name of this process in event logs."""
    host = re.sub(r"[^A-Za-z0-9-]+", "-", socket.gethostname()) or "host"
    return f"{host}-{os.getpid()}"


class EventLog:
    """The files that this process writes for one path.

    A failure to write is logged once and affects no call.
    """

    def __init__(self, path: Path, settings: EventLogSettings) -> None:
        self.settings = settings
        self._folder = path.parent
        self._stem = path.stem
        self._suffix = path.suffix or _SUFFIX
        self.queue: deque[Facts] = deque()
        self._warned = False
        self._attach = partial(_Attached, self)
        self.begin()

    def begin(self) -> None:
        """Own nothing yet: at first, and again in a forked child.

        The parent of the child writes what is in the queue.
        """
        self.queue.clear()
        self.room = MOST_QUEUED
        """How many characters more may be queued."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._file: int | None = None
        self._number = 0
        self._written = 0
        self._torn = False
        self.worker = this_worker()
        self.dropped = 0
        """How many lines were lost."""

    def of(self, scope: LoopScope) -> EventLog | None:
        """Return this log for calls in a loop; None where the loop keeps its own time."""
        return scope.get(self, self._attach).log

    def start(self) -> None:
        """Write regularly from now on."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._write_regularly, name="sfusion-event-log", daemon=True
                )
                self._thread.start()

    def add(self, facts: Facts, size: int = LINE) -> None:
        """Queue a line of about this size.

        ``facts[0](worker, facts)`` returns it when it is written. Takes no lock: the garbage
        collector may end a call anywhere.
        """
        if self.room < 0:
            self.dropped += 1
            return
        self.room -= size
        self.queue.append(facts)

    def flush(self) -> None:
        """Write what is queued."""
        with self._lock:
            if self.queue:
                self._write()

    def _write_regularly(self) -> None:
        while True:
            time.sleep(INTERVAL)
            self.flush()

    def _write(self) -> None:
        queue = self.queue
        worker = self.worker
        lines = []
        self.room = MOST_QUEUED
        for _ in range(len(queue)):
            facts = queue.popleft()
            try:
                lines.append(facts[0](worker, facts))
            except Exception:
                self.dropped += 1
                logger.debug("a line of the event log could not be made", exc_info=True)
        try:
            file = self._opened()
            data = b"".join(lines)
            # After a line that was cut short by a full disk, the next one begins on a line of its
            # own.
            rest = memoryview(b"\n" + data if self._torn else data)
            while rest:
                done = os.write(file, rest)
                self._written += done
                self._torn = rest[done - 1] != ord("\n")
                rest = rest[done:]
        except (OSError, ValueError) as error:  # a NUL in the path is a ValueError
            self.dropped += len(lines)
            self._warn(error)

    def _opened(self) -> int:
        if self._file is not None:
            # Removed by another process that keeps the total size, or by logrotate.
            if self._written < self._most and os.fstat(self._file).st_nlink:
                return self._file
            os.close(self._file)
            self._file = None
        self._folder.mkdir(parents=True, exist_ok=True)
        self._delete_oldest()
        while self._file is None:
            self._number += 1
            path = self._folder / f"{self._stem}.{self.worker}-{self._number:03}{self._suffix}"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
            with suppress(FileExistsError):  # a symbolic link that somebody else made counts as one
                self._file = os.open(path, flags, 0o644)
        self._written = 0
        self._torn = False
        return self._file

    @property
    def _most(self) -> float:
        """Bytes of one file."""
        return min(self.settings.max_file_mb, self.settings.max_total_mb) * _MB

    def _delete_oldest(self) -> None:
        """Make room for a new file within the total size."""
        found = []
        for path in event_log_files(self._folder / f"{self._stem}{self._suffix}"):
            with suppress(OSError):
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode) and _begins_as_ours(path):
                    found.append((facts.st_mtime_ns, facts.st_size, path))
        room = self.settings.max_total_mb * _MB - self._most
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total <= room:
                return
            with suppress(OSError):
                path.unlink()
            total -= size

    def _warn(self, error: Exception) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "the event log %s cannot be written: %s; calls go on, and this is logged only once",
                self._folder / f"{self._stem}{self._suffix}",
                getattr(error, "strerror", None) or error,
            )


class _Attached(LoopResource):
    """A log in use by a loop, whose end writes what is queued: this process may end with it."""

    def __init__(self, log: EventLog) -> None:
        self.log = log if tells_real_time(asyncio.get_running_loop()) else None
        if self.log is not None:
            self.log.start()

    def abandon(self) -> None:
        if self.log is not None:
            self.log.flush()


_logs: dict[tuple[Path, EventLogSettings], EventLog] = {}
_logs_lock = threading.Lock()


def open_event_log(settings: EventLogSettings) -> EventLog:
    """Return the log of this process for these settings; tools with the same settings share it."""
    path = Path(os.path.expanduser(settings.path))  # unlike Path's, it leaves an unknown user alone
    is_folder = settings.path.endswith(("/", os.sep))
    with suppress(OSError):  # a path that cannot be reached; the first line that is written says so
        path = path.absolute()
        is_folder = is_folder or path.is_dir()
    if is_folder:
        path = path / f"{_NAME}{_SUFFIX}"
    with _logs_lock:
        key = path, settings
        log = _logs.get(key)
        if log is None:
            log = _logs[key] = EventLog(path, settings)
        return log


def flush_event_logs() -> None:
    """Write what is queued in this process."""
    for log in list(_logs.values()):
        log.flush()


def event_log_files(path: Path) -> list[Path]:
    """Return the files that processes of any host write for this path, sorted by name."""
    name = re.compile(
        rf"{re.escape(path.stem)}\.[A-Za-z0-9-]+-\d+-\d{{3,}}{re.escape(path.suffix or _SUFFIX)}"
    )
    return sorted(file for file in path.parent.iterdir() if name.fullmatch(file.name))


def _begins_as_ours(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(LINE_OPENING)) == LINE_OPENING


def _forget() -> None:
    global _logs_lock
    _logs_lock = threading.Lock()
    for log in _logs.values():
        if log._file is not None:
            with suppress(OSError):
                os.close(log._file)
        log.begin()


atexit.register(flush_event_logs)
if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forget)
