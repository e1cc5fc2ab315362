"""Reads logs of production, whatever wrote them, line by line: any size fits into memory."""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from sfusion.harness.errors import LogError
from sfusion.harness.logs.access_records import access_record
from sfusion.harness.logs.dump_records import (
    is_request,
    is_sample,
    request_records,
    requests_of,
    sample_records,
    step_of,
)
from sfusion.harness.logs.event_records import event_record, is_event_line
from sfusion.harness.logs.journal_records import JournalCalls, is_journal_event, is_journal_header
from sfusion.harness.logs.record import LoggedCall
from sfusion.harness.logs.values import BadLine
from sfusion_tools.bounded_input import bounded_lines, parse_json
from sfusion_tools.errors import InputError
from sfusion_tools.event_log import event_log_files

LONGEST_LINE = 20_000_000
LOG_SUFFIXES = (".ndjson", ".jsonl", ".log", ".gz")
"""Files of a folder that are read."""

Problem = Callable[[str], None]
"""Called with what is wrong with a line, beginning with its file and number."""


class UnreadableLines:
    """Counts lines that cannot be read, and keeps what is wrong with the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self.first: list[str] = []

    def __call__(self, problem: str) -> None:
        self.count += 1
        if len(self.first) < 3:
            self.first.append(problem)


class LogReader:
    """The calls of some log files, in the order of the files and their lines, which is roughly that of their ends."""

    def __init__(self, paths: Iterable[Path | str], on_problem: Problem | None = None) -> None:
        """Without ``on_problem`` the first line that cannot be read raises LogError; with it such lines are skipped."""
        given = [Path(path) for path in paths]
        self.files = list(log_files(given))
        self._named = set(given)
        self.total_bytes = sum(path.stat().st_size for path in self.files)
        self.bytes = 0
        """How much has been read so far, of compressed files as much as they take on disk."""
        self.lines = 0
        self.skipped = 0
        """Lines that are about something else than a call."""
        self._on_problem = on_problem

    def __iter__(self) -> Iterator[LoggedCall]:
        for path in self.files:
            yield from self._read_file(path)

    def _read_file(self, given: Path) -> Iterator[LoggedCall]:
        path = requests_of(given)
        lines = _Lines(path)
        before, found, other = self.bytes, 0, 0
        try:
            with path.open("rb") as raw:
                file: IO[bytes] = gzip.GzipFile(fileobj=raw) if _is_gzip(raw) else raw  # type: ignore[assignment]
                for number, line in bounded_lines(file, str(path), line=LONGEST_LINE):
                    self.lines += 1
                    if not number % 100:
                        self.bytes = before + min(raw.tell(), given.stat().st_size)
                    try:
                        records = lines.read(line, number)
                        if records is None:
                            other = other or number
                            self.skipped += 1
                            continue
                        for record in records:
                            found += 1
                            yield record
                    except (BadLine, InputError) as error:
                        # The last line of a log that is still written, or whose process was killed, may be cut short.
                        if line.endswith(b"\n"):
                            text = str(error) if isinstance(error, InputError) else f"{path}:{number}: {error}"
                            self._problem(text)
                for record in lines.rest():
                    found += 1
                    yield record
        except (OSError, EOFError, zlib.error, InputError) as error:
            text = str(error) if isinstance(error, InputError) else f"{path}:1: cannot be read: {_reason(error)}"
            self._problem(text)
        self.bytes = before + given.stat().st_size
        # In a folder, files of other kinds are no surprise.
        if other and not found and not lines.known and given in self._named:
            raise LogError(f"{path}:{other}: not a line of a log that sfusion knows; {KNOWN}")

    def _problem(self, text: str) -> None:
        if self._on_problem is None:
            raise LogError(text)
        self._on_problem(text)


KNOWN = "it reads event logs, journals of runs and proxies, rollout dumps, and access logs of uvicorn and nginx"


class _Lines:
    """The lines of one file, each of whatever kind it is."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = JournalCalls()
        self.known = False
        """There was a line of a log, even if it is not about a call."""

    def read(self, line: bytes, number: int) -> Iterable[LoggedCall] | None:
        """Return the calls that a line completes; None if it is about something else."""
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        if line.startswith(b"{"):
            record = parse_json(line, f"{self._path}:{number}")
            return self._of_object(record, number) if isinstance(record, dict) else None
        if not line.strip():
            return ()
        request = access_record(line, number)
        return None if request is None else (request,)

    def _of_object(self, record: dict[str, Any], number: int) -> Iterable[LoggedCall] | None:
        if is_event_line(record):
            return (event_record(record),)
        if is_journal_event(record):
            self.known = True
            return self._journal.add(record)
        if is_journal_header(record):
            self.known = True
            self._journal.header()
            return ()
        if is_request(record):
            self.known = True
            return request_records(record, step_of(self._path, record))
        if is_sample(record):
            self.known = True
            return sample_records(record, step_of(self._path, record), number)
        return None

    def rest(self) -> Iterable[LoggedCall]:
        return self._journal.rest()


def read_records(paths: Iterable[Path | str], on_problem: Problem | None = None) -> Iterator[LoggedCall]:
    """Yield the calls of log files or folders of them, see LogReader."""
    return iter(LogReader(paths, on_problem))


def log_files(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield the files that are meant: those given, and of folders the ones that look like logs."""
    for path in paths:
        try:
            mode = path.stat().st_mode
        except (OSError, ValueError) as error:
            # The path of an event log in a tool config stands for the files of all processes.
            found = event_log_files(path) if path.name and path.parent.is_dir() else []
            if not found:
                raise LogError(f"{path}: cannot be read: {_reason(error)}") from None
            yield from found
            continue
        if stat.S_ISREG(mode):
            yield path
        elif stat.S_ISDIR(mode):
            found = sorted(one for one in path.iterdir() if one.suffix in LOG_SUFFIXES and one.is_file())
            if not found:
                raise LogError(f"{path}: no file in this folder ends with {', '.join(LOG_SUFFIXES)}")
            yield from found
        else:
            raise LogError(f"{path}: neither a file nor a folder")


def _is_gzip(file: Any) -> bool:
    return bool(file.peek(2)[:2] == b"\x1f\x8b")


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
