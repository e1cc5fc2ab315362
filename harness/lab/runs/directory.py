"""A run on disk: scenario.yaml, journal.ndjson and verdict.json, enough to replay it anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, get_args

import yaml

from sfusion_tools.bounded_input import parse_json, read_bounded
from sfusion_tools.errors import InputError, near

from ...atomic_files import lock_folder, write_file, writing
from ...core.journal import PAGE, Journal
from ...errors import JournalError, ScenarioError
from ..promises import Verdict
from ..scenarios.model import Scenario, World
from ..scenarios.reading import JOURNAL, read_scenarios
from .runner import RunResult
from .tasks import Task

SCENARIO = "scenario.yaml"
VERDICT = "verdict.json"
_LARGEST_VERDICT = 50_000_000
"""Bytes; chosen: far more than a verdict has, and little enough for the memory of any machine."""
_DIGEST_BYTES = 16
"""Of a checksum; chosen: two files never have the same by chance."""


@contextmanager
def written_run(result: RunResult, out: Path) -> Iterator[Path]:
    """Write one run below ``out`` and yield its folder, to which its page may be added.

    Meanwhile no other process writes below ``out``. The files of an older run go first and the
    verdict with the digests comes last, so that an interruption leaves no mixture of two runs.
    Raises CannotWrite.
    """
    scenario = scenario_text(result.task.scenario)
    journal = "".join(result.journal.lines())
    digest = _digest(journal)
    with writing(out):
        lock = lock_folder(out)
    with lock:
        folder = out / result.task.folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for name in (PAGE, VERDICT, JOURNAL):
                (folder / name).unlink(missing_ok=True)
        write_file(folder / SCENARIO, scenario)
        write_file(folder / JOURNAL, journal)
        try:
            yield folder
        finally:
            _write_verdict(result, folder, digest)


def write_run(result: RunResult, out: Path) -> Path:
    """Write one run without a page below ``out`` and return its folder; raises CannotWrite."""
    with written_run(result, out) as folder:
        return folder


def _write_verdict(result: RunResult, folder: Path, journal_digest: str) -> None:
    data = verdict_data(result, journal_digest)
    digests = {VERDICT: _digest(json.dumps(data))}
    for name in (SCENARIO, PAGE):
        if (folder / name).exists():
            digests[name] = _digest_of_file(folder / name)
    write_file(folder / VERDICT, json.dumps({**data, "digests": digests}, indent=2) + "\n")


def is_run(folder: Path) -> bool:
    return (folder / SCENARIO).is_file() and (folder / JOURNAL).is_file()


def edited_line(folder: Path) -> str:
    """Say which files are not as one run wrote them, and what to do; empty if all of them are.

    Every run writes a digest of each file. They are checksums, not signatures: who recomputes them
    is not found out.
    """
    again = "run the scenario again, or copy the whole folder from where it ran"
    if not is_run(folder):
        return ""  # reading it says what is missing
    if not (folder / VERDICT).is_file():
        return (
            f"{folder}: {VERDICT} is missing: the run was interrupted, or the file was "
            f"removed; {again}"
        )
    try:
        data = read_verdict(folder / VERDICT)
    except JournalError as error:
        return f"{folder}: changed or cut short: {VERDICT} ({error}); {again}"
    digests = data.pop("digests", None)
    recorded = {JOURNAL: data.get("journal_digest")}
    if isinstance(digests, dict):
        recorded |= digests
    found = {VERDICT: _digest(json.dumps(data))}
    for name in (JOURNAL, SCENARIO, PAGE):
        if name != PAGE or (folder / PAGE).exists():  # nobody is misled by a page that is gone
            found[name] = _digest_of_file(folder / name)

    unknown = [name for name in found if recorded.get(name) is None]
    if unknown:
        return (
            f"{folder}: {VERDICT} has no digest of {', '.join(unknown)}: it was edited, or an "
            f"older sfusion wrote it, so its verdicts may not be those of the run; {again}"
        )
    edited = [name for name, digest in found.items() if recorded[name] != digest]
    if edited:
        return (
            f"{folder}: changed, cut short or taken from another run: {', '.join(edited)}; {again}"
        )
    return ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _digest_of_file(path: Path) -> str:
    with path.open("rb") as file:
        make = partial(hashlib.blake2b, digest_size=_DIGEST_BYTES)
        return hashlib.file_digest(file, make).hexdigest()


def verdict_data(result: RunResult, journal_digest: str) -> dict[str, Any]:
    """Return the content of verdict.json."""
    scenario = result.task.scenario
    return {
        "scenario": scenario.scenario,
        "cell": scenario.cell,
        "seed": scenario.seed,
        "world": result.task.world,
        "state": result.state,
        "journal_digest": journal_digest,
        "events": len(result.journal.events),
        "wall_seconds": round(result.wall_seconds, 3),
        "error": result.error,
        "difference": result.difference,
        "verdicts": [verdict.as_dict() for verdict in result.verdicts],
    }


def scenario_text(scenario: Scenario) -> str:
    """Return the cell as a scenario file of its own, without matrix and extends."""
    head = f"# cell: {scenario.cell}\n" if scenario.cell else ""
    return head + yaml.safe_dump(scenario.written, sort_keys=False, allow_unicode=True, width=120)


def near_runs(folder: Path) -> str:
    """Say which run beside a missing one may have been meant."""
    runs = [path.parent.name for path in folder.parent.glob(f"*/{SCENARIO}")]
    if not runs:
        return "give the folder of a run, as `sfusion run --out` or `sfusion judge --out` writes it"
    return near(folder.name, runs)


def read_run(folder: Path) -> tuple[Task, Journal, list[Verdict]]:
    """Read a run back, as a task that is not trusted; raise ScenarioError if a file is missing."""
    if not folder.exists():
        raise ScenarioError([f"{folder}: no such folder; {near_runs(folder)}"])
    for name in (SCENARIO, JOURNAL):
        if not (folder / name).is_file():
            problem = f"{folder}: not a run: {name} is missing"
            raise ScenarioError([f"{problem}; give the folder of one scenario below --out"])
    journal = Journal.read(folder / JOURNAL)
    scenario = read_scenarios(folder / SCENARIO)[0].changed(cell=journal.header["cell"])
    world = journal.header["world"]
    if world not in get_args(World) or scenario.not_for(world) is not None:
        raise JournalError(
            f"{folder / JOURNAL}:1: world {world!r} is not one of its scenario: {scenario.worlds}"
        )
    return Task(scenario, world, folder / SCENARIO), journal, _read_verdicts(folder / VERDICT)


def _read_verdicts(path: Path) -> list[Verdict]:
    if not path.is_file():
        return []
    try:
        return [Verdict.from_dict(data) for data in read_verdict(path)["verdicts"]]
    except ValueError as error:
        raise JournalError(f"{path}: {error}; this is not a verdict, or not a whole one") from None


def read_verdict(path: Path) -> dict[str, Any]:
    """Read a verdict.json as plain data; raises JournalError."""
    try:
        data = parse_json(read_bounded(path, _LARGEST_VERDICT), str(path))
        if not isinstance(data, dict) or not isinstance(data.get("verdicts"), list):
            raise InputError(f"{path}: expected a mapping with a list `verdicts`")
        return data
    except InputError as error:
        raise JournalError(f"{error}; this is not a verdict, or not a whole one") from None
