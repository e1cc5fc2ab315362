"""The journal: the events of a run in order, with ids that are the same in every run.

One NDJSON file: a header line, then one event per line. docs/journal.md describes it; ``VERSION`` changes with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sfusion.harness.errors import JournalError
from sfusion_tools._version import __version__

VERSION = 1

Event = dict[str, Any]


class Journal:
    """A header and events; ``note`` adds one."""

    def __init__(self, header: dict[str, Any], events: list[Event] | None = None) -> None:
        self.header = header
        self.events: list[Event] = [] if events is None else events
        self.watchers: list[Callable[[Event], None]] = []
        """Called with each event that is added."""

    @classmethod
    def begin(cls, *, scenario: str, cell: str, seed: int, world: str, **more: Any) -> Journal:
        """Return an empty journal for a run."""
        head = {"journal": VERSION, "scenario": scenario, "cell": cell, "seed": seed, "world": world}
        return cls({**head, "sfusion": __version__, **more})

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
        encode = json.JSONEncoder(separators=(",", ":")).encode
        yield encode(self.header) + "\n"
        for event in self.events:
            yield encode(event) + "\n"

    def digest(self) -> str:
        """Return a digest of every byte of the file; equal runs have equal digests."""
        summary = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            summary.update(line.encode())
        return summary.hexdigest()

    def write(self, path: Path) -> None:
        with path.open("w", encoding="ascii", newline="\n") as file:
            file.writelines(self.lines())

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read a file; raise JournalError if it is not a journal or has another version."""
        try:
            with path.open(encoding="utf-8") as file:
                records = [json.loads(line) for line in file]
        except OSError as error:
            raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise JournalError(f"{path}: not a journal: {error}") from error
        if not records or not isinstance(records[0], dict) or "journal" not in records[0]:
            raise JournalError(f"{path}: not a journal: its first line has no key 'journal'")
        if records[0]["journal"] != VERSION:
            raise JournalError(
                f"{path}: a journal of version {records[0]['journal']}; this sfusion reads version {VERSION}"
            )
        return cls(records[0], records[1:])


def first_difference(one: Journal, other: Journal) -> tuple[int, str, str] | None:
    """Return number and texts of the first line in which two journals differ; None if they are equal."""
    left, right = list(one.lines()), list(other.lines())
    for number in range(max(len(left), len(right))):
        a = left[number].rstrip("\n") if number < len(left) else "(the journal ends)"
        b = right[number].rstrip("\n") if number < len(right) else "(the journal ends)"
        if a != b:
            return number + 1, a, b
    return None
