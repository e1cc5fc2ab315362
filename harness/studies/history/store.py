"""Where history is kept: ``DIR/.history/<run>/records.ndjson``, and the files of earlier runs that
differ.

The latest run stays at ``DIR/<run>``. A run whose journal is the same as the next one's is not kept
twice.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sfusion_tools._version import __version__
from sfusion_tools.bounded_input import parse_json, read_lines
from sfusion_tools.errors import InputError, near

from ...atomic_files import lock_folder, write_file, writing
from ...core.figures import figures_of
from ...core.journal import PAGE
from ...core.verdict import check_types
from ...errors import BadOption, JournalError
from ...lab.runs.directory import SCENARIO, VERDICT, read_verdict, write_run
from ...lab.runs.runner import RunResult
from ...lab.scenarios.reading import JOURNAL

_FIGURES = (
    "calls",
    "outcomes",
    "seconds",
    "throughput",
    "p50",
    "p95",
    "p99",
    "wait_p95",
    "attempts",
)


@dataclass(frozen=True, slots=True)
class HistoryRecord:
    run: int
    """Counted from 1 in the history of a scenario; the folder of an earlier run has this number
    as its name."""
    time: str
    """ISO 8601, UTC."""
    commit: str
    """What was checked out in the working directory; empty outside git."""
    sfusion: str
    world: str
    seed: int
    state: str
    journal_digest: str
    promises: dict[str, str] = field(default_factory=dict)
    """The state of each verdict."""
    figures: dict[str, Any] = field(default_factory=dict)
    broken: dict[str, Any] = field(default_factory=dict)
    """How each broken promise broke, without details."""

    @classmethod
    def of_result(cls, result: RunResult, *, run: int, now: datetime, commit: str) -> HistoryRecord:
        figures = figures_of(result.journal).as_dict()
        return cls(
            run,
            now.astimezone(UTC).isoformat(timespec="seconds"),
            commit,
            __version__,
            result.task.world,
            result.task.scenario.seed,
            result.state,
            result.digest,
            {verdict.promise: verdict.state for verdict in result.verdicts},
            {key: figures[key] for key in (*_FIGURES, "refused", "wasted")},
            {
                one.promise: [one.how.kind, dict(one.how.identity)]
                for one in result.verdicts
                if one.state == "broken"
            },
        )

    @classmethod
    def from_dict(cls, data: Any) -> HistoryRecord:
        """Read a record as plain data; raise ValueError for anything else."""
        kinds = {
            "run": int,
            "time": str,
            "commit": str,
            "sfusion": str,
            "world": str,
            "seed": int,
            "state": str,
        }
        kinds |= {"journal_digest": str, "promises": dict, "figures": dict, "broken": dict}
        data = (
            {"broken": {}, **data} if isinstance(data, dict) else data
        )  # not in records of before there was `how`
        check_types(data, "a record", kinds)
        return cls(**{key: data[key] for key in kinds})

    def number(self, name: str) -> float | None:
        """Return a figure; None if this record has no such number."""
        found = self.figures.get(name)
        return float(found) if isinstance(found, int | float) and math.isfinite(found) else None


def current_commit() -> str:
    """Return the short commit; empty outside a git repository.

    Whether files were changed is not asked: that would run what the configuration of a stranger's
    repository names.
    """
    command = ["git", "rev-parse", "--short=10", "--verify", "--quiet", "HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


HISTORY = ".history"
_RECORDS = "records.ndjson"
DEFAULT_LIMIT = 20
"""Runs of one scenario that are kept, the latest included."""


@contextmanager
def written_with_history(
    result: RunResult,
    out: Path,
    *,
    limit: int,
    now: datetime,
    commit: str,
    on_damage: Callable[[str], None],
) -> Generator[Path, None, None]:
    """Write a run as ``write_run`` does, and keep the one that was there before; raises
    CannotWrite.

    Inside the context no other process writes below ``out``, so that more can be added to the
    folder. With a limit of 0 the run is not recorded, and the records that there are keep their
    files. ``on_damage`` is told what is wrong with records that cannot be read; the others are
    kept.
    """
    with writing(out):
        lock = lock_folder(out)
    with lock:
        yield _write(result, out, limit, now, commit, on_damage)


def _write(
    result: RunResult,
    out: Path,
    limit: int,
    now: datetime,
    commit: str,
    on_damage: Callable[[str], None],
) -> Path:
    folder, place = out / result.task.folder, out / HISTORY / result.task.folder
    found = list(_read(place))
    records = [one for one in found if isinstance(one, HistoryRecord)]
    problem = next((one for one in found if isinstance(one, str)), "")
    with writing(place):
        kept = (int(earlier.name) for earlier in earlier_runs(place))
        number = max([*(record.run for record in records), *kept], default=0) + 1
        if limit:
            place.mkdir(parents=True, exist_ok=True)
        if problem and limit:
            aside = (place / _RECORDS).replace(place / f"records.damaged-{number:04d}.ndjson")
            on_damage(f"{problem}; the other records are kept, and the damaged file is {aside}")
        if records and records[-1].journal_digest != result.digest and _is_of(folder, records[-1]):
            _move_run(folder, place / f"{records[-1].run:04d}")
    written = write_run(result, out)
    if not limit:
        return written
    records = [*records, HistoryRecord.of_result(result, run=number, now=now, commit=commit)][
        -limit:
    ]
    write_file(
        place / _RECORDS,
        (json.dumps(asdict(record), separators=(",", ":")) + "\n" for record in records),
    )
    for earlier in earlier_runs(place):
        if int(earlier.name) <= number - limit:
            shutil.rmtree(earlier, ignore_errors=True)
    return written


def read_records(place: Path) -> Iterator[HistoryRecord]:
    """Yield the records of one scenario, the oldest first; none if there is no history. Raises
    JournalError."""
    for one in _read(place):
        if isinstance(one, str):
            raise JournalError(f"{one}; this is not a history, or not a whole one")
        yield one


def _read(place: Path) -> Iterator[HistoryRecord | str]:
    """Yield for each line its record, or what is wrong with it."""
    file = place / _RECORDS
    if not file.is_file():
        return
    number = 0
    try:
        for number, line in read_lines(file):
            where = f"{file}:{number}"
            try:
                yield HistoryRecord.from_dict(parse_json(line, where))
            except InputError as error:
                yield str(error)
            except ValueError as error:
                yield f"{where}: {error}"
    except InputError as error:
        yield str(error)
    else:
        if not number:
            yield f"{file}:1: no record in it"


def earlier_runs(place: Path) -> list[Path]:
    """Return the folders of the earlier runs that are kept, the oldest first."""
    return sorted(path for path in place.glob("*") if path.is_dir() and path.name.isdecimal())


def folder_of(record: HistoryRecord, records: Sequence[HistoryRecord], place: Path) -> Path | None:
    """Return the folder with the files of a run, or of one with the same journal; None if it is
    gone."""
    latest = place.parents[1] / place.name
    if (latest / JOURNAL).is_file() and _is_of(latest, record):
        return latest
    same = {one.run for one in records if one.journal_digest == record.journal_digest}
    return next((path for path in earlier_runs(place) if int(path.name) in same), None)


def _is_of(folder: Path, record: HistoryRecord) -> bool:
    """Are the files of the latest run those of this record? Another command may have written
    there."""
    try:
        return bool(read_verdict(folder / VERDICT).get("journal_digest") == record.journal_digest)
    except JournalError:
        return False


def _move_run(folder: Path, target: Path) -> None:
    """Move the files of a run, the journal last: a folder without one is not taken for a run."""
    if not (folder / JOURNAL).is_file():
        return
    target.mkdir(exist_ok=True)
    for name in (SCENARIO, PAGE, VERDICT, JOURNAL):
        if (folder / name).is_file():
            (folder / name).replace(target / name)


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
            {**asdict(record), "folder": folder or None}
            for record, folder in zip(self.records, self.folders, strict=True)
        ]


def read_histories(out: Path, names: Sequence[str]) -> list[ScenarioHistory]:
    """Read the histories of these scenarios, or of all; raise BadOption if there are none."""
    places = {
        file.parent.name: file.parent for file in sorted((out / HISTORY).glob(f"*/{_RECORDS}"))
    }
    if not places:
        raise BadOption(
            f"{out}: no history; `sfusion run --out {out}` keeps one, or name another "
            "folder with --out"
        )
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
            read.append(
                ScenarioHistory(
                    name, records, [str(one) if one is not None else "" for one in folders]
                )
            )
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
    changes += [
        f"{name}: broken in another way"
        for name in sorted(both)
        if old.broken[name] != new.broken[name]
    ]
    if changes:
        return "; ".join(changes)
    return "" if old.journal_digest == new.journal_digest else "other journal"
