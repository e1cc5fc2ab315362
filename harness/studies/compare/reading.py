"""Reads the runs to compare: two runs, or two folders of runs."""

from __future__ import annotations

from pathlib import Path

from sfusion.harness.errors import BadOption
from sfusion.harness.lab.runs.directory import read_run
from sfusion.harness.lab.scenarios.library import JOURNAL
from sfusion.harness.studies.compare.comparison import RecordedRun

_NOT_SETTINGS = ("scenario", "about", "incident", "expected", "worlds", "promises")


def read_recorded(folder: Path) -> RecordedRun:
    """Read one run; raises ScenarioError or JournalError."""
    task, journal, verdicts = read_run(folder)
    settings = {key: value for key, value in task.scenario.written.items() if key not in _NOT_SETTINGS}
    return RecordedRun(task.name, settings, journal, verdicts)


def paired_folders(before: Path, after: Path) -> tuple[list[tuple[Path, Path]], list[Path], list[Path]]:
    """Return the runs to compare, and those that only one of the two folders has."""
    if is_run(before) and is_run(after):
        return [(before, after)], [], []
    if is_run(before) != is_run(after):
        other = after if is_run(before) else before
        raise BadOption(f"{other}: not a run; compare two runs, or two folders that hold runs")
    olds, news = _runs_below(before), _runs_below(after)
    if not set(olds) & set(news):
        raise BadOption(f"{before} and {after} have no run of the same name; give the folders of two runs")
    both = [(olds[name], news[name]) for name in olds if name in news]
    return both, [olds[name] for name in olds if name not in news], [news[name] for name in news if name not in olds]


def is_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file()


def _runs_below(folder: Path) -> dict[str, Path]:
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{JOURNAL}"))}
    if not found:
        raise BadOption(f"{folder}: not a run, and no runs below it; give a folder that `sfusion run --out` wrote")
    return found
