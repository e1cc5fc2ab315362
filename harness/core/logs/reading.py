"""Reads logs of production, whatever wrote them, line by line: any size fits into memory."""

from __future__ import annotations

import gzip
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any

from sfusion_tools.bounded_input import bounded_lines, parse_json, read_bounded
from sfusion_tools.errors import InputError
from sfusion_tools.event_log import event_log_files
from sfusion_tools.record import Call, CallFold
from sfusion_tools.wording import counted

from ...errors import LogError, NoDump
from ..dumps.files import is_episode, rollout_files
from ..journal import version_problem
from . import dump_records, own_lines
from .access_records import ServerOutput, access_records

_PIECE = 2**20
_TRAILER = 8
"""Bytes at the end of a gzip file: the CRC-32 and the size of what it holds."""


def repeats(files: Sequence[Path]) -> dict[int, str]:
    """Return the places in the list that need not be read, with the reason."""
    found: dict[int, str] = {}
    first: dict[tuple[int, int], Path] = {}
    for place, file in enumerate(files):
        try:
            facts = file.stat()
        except OSError:
            continue
        inode = facts.st_dev, facts.st_ino
        if inode in first:
            found[place] = f"{file}: the same file as {first[inode]}, read once"
        first.setdefault(inode, file)
    rest = {place: file for place, file in enumerate(files) if place not in found}
    by_name: dict[str, list[Path]] = {}
    for file in rest.values():
        by_name.setdefault(file.name, []).append(file)
    for place, file in rest.items():
        copied = [
            other
            for other in by_name.get(file.stem, ())
            if file.suffix == ".gz" and _is_copy(file, other)
        ]
        if copied:
            found[place] = f"{file}: the same lines as {copied[0]}, read once"
    return found


def _is_copy(packed: Path, plain: Path) -> bool:
    """Does a gzip file hold this file? Its own checksum tells, without unpacking it."""
    try:
        with packed.open("rb") as file:
            if file.read(2) != b"\x1f\x8b" or packed.stat().st_size <= _TRAILER:
                return False
            file.seek(-_TRAILER, 2)
            trailer = file.read()
        if int.from_bytes(trailer[4:], "little") != plain.stat().st_size % 2**32:
            return False
        crc = 0
        with plain.open("rb") as file:
            while piece := file.read(_PIECE):
                crc = zlib.crc32(piece, crc)
    except OSError:
        return False
    return crc == int.from_bytes(trailer[:4], "little")


LONGEST_LINE = 20_000_000
_MOST_TIMES = 200
_LEAST_UNPACKED = 4_000_000
_LEAST_LINE = 100
"""A compressed file is read up to this many times its size, and up to this many bytes in any
case: no log is packed tighter than that. Each line counts as at least so many bytes, because
millions of empty ones take minutes."""
_STEP = 1_000
"""Lines between two reports of progress."""
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
    """The calls of some log files, in the order of the files and their lines, which is roughly
    that of their ends."""

    def __init__(
        self,
        paths: Iterable[Path | str],
        on_problem: Problem | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        """Without ``on_problem`` the first line that cannot be read raises LogError; with it such
        lines are skipped.

        ``on_progress`` is called now and then with the bytes that have been read.
        """
        listed: list[tuple[Path, Path]] = []
        for path in map(Path, paths):
            listed += [(path, file) for file in log_files(path)]
        repeated = repeats([dump_records.requests_file_of(file) for _, file in listed])
        self.left_out = [repeated[place] for place in sorted(repeated)]
        """What was given and is not read, with the reason; known whole when all is read."""
        self._cut_short: list[str] = []
        """What is wrong with last lines that have no end."""
        kept = [pair for place, pair in enumerate(listed) if place not in repeated]
        self._given = [
            _Given(path, [file for _, file in group])
            for path, group in groupby(kept, itemgetter(0))
        ]
        self.files = [file for _, file in kept]
        self._sizes = {path: _size(path) for path in self.files}
        self.total_bytes = sum(self._sizes[path] for path in self.files)
        self.bytes = 0
        """How much has been read so far, of compressed files as much as they take on disk."""
        self.lines = 0
        self.skipped = 0
        """Lines that are about something else than a call."""
        self.on_sandbox: Callable[[Path, dict[str, Any]], None] | None = None
        """Called with each event of a journal about a sandbox that lives and dies."""
        self._on_problem = on_problem or _raise
        self.on_broken_off: Problem = self._on_problem
        """Called with why a file cannot be read, or its rest."""
        self._on_progress = on_progress or (lambda _: None)

    def __iter__(self) -> Iterator[Call]:
        for given in self._given:
            for path in given.files:
                yield from self._read_file(path, given)
            given.check()
        if self._cut_short:
            self.left_out.append(
                "Left out, because it is cut short (still being written, or its writer was "
                f"killed): the last line of {counted(len(self._cut_short), 'file')}; the first: "
                f"{self._cut_short[0]}"
            )

    def _read_file(self, listed: Path, given: _Given) -> Iterator[Call]:
        path = dump_records.requests_file_of(listed)
        lines = _Lines(path, self.on_sandbox)
        before = self.bytes
        size = self._sizes[listed]

        def problem(text: str, tell: Problem) -> None:
            given.problem = given.problem or text
            tell(text)

        def too_long(error: InputError) -> None:
            self.lines += 1
            problem(str(error), self._on_problem)

        number = 0
        try:
            with path.open("rb") as raw:
                is_packed = is_gzip(raw)
                unpacked = 0
                file: IO[bytes] = gzip.GzipFile(fileobj=raw) if is_packed else raw  # type: ignore[assignment]
                most = max(_LEAST_UNPACKED, _MOST_TIMES * size)
                on_long = (
                    None if is_packed else too_long
                )  # passing over a packed line may take as long as reading it
                for number, line in _numbered_lines(path, file, on_long):
                    self.lines += 1
                    if is_packed and (unpacked := unpacked + max(len(line), _LEAST_LINE)) > most:
                        raise InputError(
                            f"{path}:{number}: unpacks to more than {_MOST_TIMES} times "
                            f"its size, {size:,} bytes; "
                            "the rest is not read. Unpack it yourself if it is a log"
                        )
                    if not number % _STEP:
                        self.bytes = before + min(raw.tell(), size)
                        self._on_progress(self.bytes)
                    try:
                        records = lines.read(line, number)
                        if records is None:
                            given.other = given.other or f"{path}:{number}"
                            self.skipped += 1
                            continue
                        yield from records
                    except (own_lines.BadLine, InputError) as error:
                        where = "" if isinstance(error, InputError) else f"{path}:{number}: "
                        has_end = line.endswith(b"\n")
                        tell = self._on_problem if has_end else self._cut_short.append
                        problem(f"{where}{_reason(error)}", tell)
                yield from lines.rest()
        except InputError as error:
            problem(str(error), self.on_broken_off)
            yield from lines.rest()
        except (OSError, EOFError, zlib.error) as error:
            what = "cannot be read from here on" if number else "cannot be read"
            problem(f"{path}:{number + 1}: {what}: {_reason(error)}", self.on_broken_off)
        given.known = given.known or lines.known
        self.bytes = before + size


def _numbered_lines(
    path: Path, file: IO[bytes], on_long: Callable[[InputError], None] | None
) -> Iterator[tuple[int, bytes]]:
    """Return the lines of an open log with their numbers; an episode of rLLM counts as one."""
    if is_episode(path):
        return iter([(1, read_bounded(path, LONGEST_LINE))])
    return bounded_lines(file, str(path), line=LONGEST_LINE, on_long=on_long)


@dataclass(slots=True)
class _Given:
    """A path that was given, with what the files that it stands for turned out to be."""

    path: Path
    files: list[Path]
    known: bool = False
    """There was a line of a log."""
    other: str = ""
    """The place of the first line that is something else."""
    problem: str = ""
    """The first one."""

    def check(self) -> None:
        """Raise LogError if this is no log. Beside one, files of other kinds are no surprise in
        a folder."""
        if self.known:
            return
        if self.other:
            raise LogError(f"{self.other}: not a line of a log that sfusion knows; {KNOWN}")
        raise LogError(
            f"{self.path}: "
            f"{f'nothing in it can be read; {self.problem}' if self.problem else 'no line in it'}"
        )


_OF_AN_EVENT = {"at", "event", "source"}
"""Keys of every event of a journal."""
_OF_A_SANDBOX = "sandbox_"
"""How the names of events begin that are about sandboxes with a life cycle."""
_OF_AN_EPISODE = "episode_"
_DOCKER = {"log", "stream", "time"}
"""Docker's json-file driver writes each line of a container as an object with these keys."""


KNOWN = (
    "it reads event logs, journals of runs and proxies, rollout dumps, the output of "
    "Sandbox Fusion, and access logs "
    "of uvicorn and nginx"
)


class _Lines:
    """The lines of one file, each of whatever kind it is."""

    def __init__(
        self, path: Path, on_sandbox: Callable[[Path, dict[str, Any]], None] | None
    ) -> None:
        self._path = path
        self._on_sandbox = on_sandbox
        self._journal = CallFold()
        self._output = ServerOutput()
        self._is_docker = False
        self.known = False
        """There was a line of a log, even if it is not about a call."""

    def read(self, line: bytes, number: int, time: str = "") -> Iterable[Call] | None:
        """Return the calls that a line completes; None if it is about something else.

        ``time`` is that of the line where something else noted it.
        """
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        is_quoted = self._output.in_code and (bool(time) or not self._is_docker)
        if line.startswith(b"{") and not is_quoted:
            record = parse_json(line, f"{self._path}:{number}")
            return self._of_object(record, number) if isinstance(record, dict) else None
        if not line.strip():
            return ()
        requests = None if self._output.in_code else access_records(line, number)
        if requests is None:
            requests = self._output.read(line, number, time)
        self.known = self.known or requests is not None
        return requests or None

    def _of_object(self, record: dict[str, Any], number: int) -> Iterable[Call] | None:
        if "event_log" in record:
            call = own_lines.event_call(record)
            self.known = True
            return (call,)
        if record.keys() >= _OF_AN_EVENT:
            self.known = True
            if str(record["event"]).startswith(_OF_AN_EPISODE):
                return ()  # its outcome is a word of its client
            event = own_lines.checked_event(record)
            if self._on_sandbox is not None and event["event"].startswith(_OF_A_SANDBOX):
                self._on_sandbox(self._path, record)
            return self._journal.add(event)
        if "journal" in record and "scenario" in record:
            self.known = True
            self._journal.of_run = True
            if problem := version_problem(record):
                raise own_lines.BadLine(problem)
            return ()
        if "request_id" in record and isinstance(record.get("outcomes"), dict):
            self.known = True
            return dump_records.request_records(record, dump_records.step_of(self._path, record))
        if dump_records.is_rollout(record):
            self.known = True
            return dump_records.rollout_records(record, self._path, number)
        if (found := self._output.read_object(record, number)) is not None:
            self.known = True
            return found or None
        if record.keys() >= _DOCKER and all(isinstance(record[key], str) for key in _DOCKER):
            return self._of_docker(record["log"], record["time"], number)
        return None

    def _of_docker(self, text: str, time: str, number: int) -> Iterable[Call] | None:
        self._is_docker = True
        line = text.encode("utf-8", "replace")
        if any(not call.timed for call in access_records(line, number) or ()):
            line = f"{time} {text}".encode("utf-8", "replace")
        is_nested = line.startswith(b"{") and b'"log"' in line and b'"stream"' in line
        return None if is_nested else self.read(line, number, time)

    def rest(self) -> Iterable[Call]:
        yield from self._journal.rest()
        yield from self._output.rest()


@contextmanager
def with_stdin(paths: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield the paths, with a file that holds what comes from stdin in place of ``-``: a log may
    be read twice."""
    if Path("-") not in paths:
        yield list(paths)
        return
    with tempfile.TemporaryDirectory(prefix="sfusion-") as folder:
        copy = Path(folder) / "stdin"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, _PIECE)
        yield [copy if path == Path("-") else path for path in paths]


def read_records(paths: Iterable[Path | str], on_problem: Problem | None = None) -> Iterator[Call]:
    """Yield the calls of log files or folders of them, see LogReader."""
    return iter(LogReader(paths, on_problem))


def is_gzip(file: BufferedReader) -> bool:
    return file.peek(2)[:2] == b"\x1f\x8b"


def log_files(path: Path) -> list[Path]:
    """Return the files that are meant: the one given, or of a folder the ones that look like
    logs."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        # The path of an event log in a tool config stands for the files of all processes.
        found = event_log_files(path) if path.name and path.parent.is_dir() else []
        if not found:
            raise LogError(f"{path}: cannot be read: {_reason(error)}") from None
        return found
    if stat.S_ISREG(mode):
        return [path]
    if not stat.S_ISDIR(mode):
        raise LogError(f"{path}: neither a file nor a folder")
    logs = [file for file in path.iterdir() if file.suffix in LOG_SUFFIXES]
    found = sorted(file for file in logs if file.is_file())
    return found or _dumps_below(path)


def _dumps_below(path: Path) -> list[Path]:
    """Return the files of a trainer that has a folder for each step."""
    try:
        return rollout_files(path)
    except NoDump:
        raise LogError(
            f"{path}: no file in this folder ends with {', '.join(LOG_SUFFIXES)}"
        ) from None


def _size(path: Path) -> int:
    """Return the size of a file; 0 if it was removed meanwhile, as the event log does with old
    ones."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _raise(problem: str) -> None:
    raise LogError(problem)


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error)
