"""The histories of a folder of runs, read for a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sfusion.harness.errors import BadOption
from sfusion.harness.studies.history.record import HistoryRecord
from sfusion.harness.studies.history.store import folder_of, histories, read_records
from sfusion_tools.errors import near


@dataclass(frozen=True, slots=True)
class ScenarioHistory:
    """The records of one scenario, or of one cell of its matrix, the oldest first; at least one."""

    name: str
    records: Sequence[HistoryRecord]
    folders: Sequence[str]
    """The folder with the files of each run; empty where they are gone."""

    @property
    def changes(self) -> list[str]:
        """What changed from the record before, for each record."""
        before: list[HistoryRecord | None] = [None, *self.records[:-1]]
        return [_changed(old, new) for old, new in zip(before, self.records, strict=True)]

    def as_list(self) -> list[dict[str, Any]]:
        return [
            {**record.as_dict(), "folder": folder or None}
            for record, folder in zip(self.records, self.folders, strict=True)
        ]


def read_histories(out: Path, names: Sequence[str]) -> list[ScenarioHistory]:
    """Read the histories of these scenarios, or of all; raise BadOption if there are none."""
    places = histories(out)
    if not places:
        raise BadOption(f"{out}: no history; `sfusion run --out {out}` keeps one, or name another folder with --out")
    wanted: list[str] = []
    for name in names:
        found = [one for one in places if one == name or one.startswith((f"{name}[", f"{name}@"))]
        if not found:
            raise BadOption(f"{name}: no history in {out}; {near(name, places)}")
        wanted += found
    read = []
    for name in dict.fromkeys(wanted or places):
        records = list(read_records(places[name]))
        if records:
            folders = [folder_of(record, records, places[name]) for record in records]
            read.append(ScenarioHistory(name, records, [str(one) if one is not None else "" for one in folders]))
    return read


def _changed(old: HistoryRecord | None, new: HistoryRecord) -> str:
    if old is None:
        return "first"
    changes = [
        f"{promise}: {old.promises.get(promise, 'new')} -> {new.promises.get(promise, 'gone')}"
        for promise in dict.fromkeys((*old.promises, *new.promises))
        if old.promises.get(promise) != new.promises.get(promise)
    ]
    both = old.broken.keys() & new.broken.keys()
    changes += [f"{name}: broken in another way" for name in sorted(both) if old.broken[name] != new.broken[name]]
    if changes:
        return "; ".join(changes)
    return "" if old.journal_digest == new.journal_digest else "other journal"
