"""The journal: the events of a run in order, with ids that are the same in every run.

One NDJSON file: a header line, then one event per line. docs/journal.md describes it; ``VERSION``
changes with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

from sfusion_tools._version import __version__
from sfusion_tools.bounded_input import parse_json, read_lines
from sfusion_tools.errors import InputError

from ..atomic_files import write_file
from ..errors import JournalError

VERSION = 2
_LATEST = 1e12
"""Seconds; chosen: no run lasts that long."""
SHOWN = 400
"""How many characters of a text are kept."""
PAGE = "report.html"
"""The page of a run, beside its journal."""

Event = dict[str, Any]


class Journal:
    """A header and events; ``note`` adds one."""

    def __init__(self, header: dict[str, Any], events: list[Event] | None = None) -> None:
        self.header = header
        self.events: list[Event] = [] if events is None else events
        self.watchers: list[Callable[[Event], None]] = []
        """Called with each event that is added."""

    @classmethod
    def begin(cls, *, scenario: str, cell: str, seed: int, world: str) -> Self:
        """Return an empty journal for a run."""
        head = {
            "journal": VERSION,
            "scenario": scenario,
            "cell": cell,
            "seed": seed,
            "world": world,
        }
        return cls({**head, "sfusion": __version__})

    def note(self, at: float, source: str, event: str, **facts: Any) -> None:
        """Append an event."""
        self.add({"at": round(at, 6), "source": source, "event": event, **facts})

    def add(self, event: Event) -> None:
        self.events.append(event)
        for watch in self.watchers:
            watch(event)

    @property
    def last_time(self) -> float:
        """Return the time of the latest event."""
        return max((event["at"] for event in self.events), default=0.0)

    def lines(self) -> Iterator[str]:
        """Yield the lines of the file."""
        yield encode_line(self.header)
        for event in self.events:
            yield encode_line(event)

    def digest(self) -> str:
        """Return a digest of every byte of the file; equal runs have equal digests."""
        summary = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            summary.update(line.encode())
        return summary.hexdigest()

    def write(self, path: Path) -> None:
        """Write the file, complete or not at all; raises CannotWrite."""
        write_file(path, self.lines())

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read a file; raise JournalError if it is not a journal or has another version."""
        header: dict[str, Any] | None = None
        events: list[Event] = []
        try:
            for number, line in read_lines(path):
                record = parse_json(line, f"{path}:{number}")
                if header is None:
                    header = _checked_header(record, path)
                elif _is_event(record):
                    events.append(record)
                else:
                    raise JournalError(
                        f"{path}:{number}: not an event: it needs a time `at`, `source` and `event`"
                    )
        except InputError as error:
            raise JournalError(f"{error}; this is not a journal, or not a whole one") from None
        if header is None:
            raise JournalError(f"{path}:1: not a journal: the file is empty")
        return cls(header, events)


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def encode_line(record: Any) -> str:
    return _encode(record) + "\n"


def version_problem(header: dict[str, Any]) -> str:
    """Say which version a header has that cannot be read, and what to do; empty if it can be."""
    found = header["journal"]
    if found == VERSION:
        return ""
    return (
        f"a journal of version {found!r}; this sfusion reads version {VERSION}: "
        "run its scenario again"
    )


def _checked_header(record: Any, path: Path) -> dict[str, Any]:
    if not isinstance(record, dict) or "journal" not in record:
        raise JournalError(f"{path}:1: not a journal: its first line has no key 'journal'")
    if problem := version_problem(record):
        raise JournalError(f"{path}:1: {problem}")
    kinds = {"scenario": str, "cell": str, "seed": int, "world": str, "sandboxes": list}
    for key, kind in kinds.items():
        if key != "sandboxes" and key not in record:
            raise JournalError(f"{path}:1: not a journal: its first line has no key {key!r}")
        if key in record and not isinstance(record[key], kind):
            raise JournalError(
                f"{path}:1: {key} is {record[key]!r}, which is not a {kind.__name__}"
            )
    return record


def _is_event(record: Any) -> bool:
    if not isinstance(record, dict) or not isinstance(record.get("at"), int | float):
        return False
    if abs(record["at"]) >= _LATEST:
        return False
    return isinstance(record.get("source"), str) and isinstance(record.get("event"), str)


def first_difference(journal: Journal, other: Journal) -> tuple[int, str, str] | None:
    """Return number and texts of the first line in which two journals differ; None if they are
    equal."""
    pairs = zip_longest(journal.lines(), other.lines(), fillvalue="(the journal ends)")
    for number, (left, right) in enumerate(pairs, 1):
        if left != right:
            return number, left.rstrip("\n"), right.rstrip("\n")
    return None


def is_reordered(journal: Journal, other: Journal) -> bool:
    """Have two journals the same events, and only those of one instant come in another order?"""
    left = _timed_lines(journal)
    right = _timed_lines(other)
    return left != right and sorted(left) == sorted(right)


def _timed_lines(journal: Journal) -> list[tuple[float, str]]:
    return [(event["at"], encode_line(event)) for event in journal.events]
