"""``sfusion compare``: show what changed between two runs.

Settings, promises, outcomes, waits, texts and events are compared. Folders of many runs are
compared run by run, by name.

Exit code 0 if no promise got worse (held, then unknown or no longer checked, then broken), 1 if one
did or a file is not as its run wrote it; with --exact 1 if anything differs. 2 if the input is
wrong.

Example: sfusion compare runs-before runs-after --html changes.html
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from sfusion_tools.outcome import FAILURES
from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import Html, Json
from ...core.journal import Event
from ...errors import BadOption, JournalError, ScenarioError
from ...lab.runs.directory import edited_line, read_run
from ...lab.scenarios.reading import JOURNAL
from ...reports import Reports
from ...reports.html import render_page
from ...terminal import ProgressReporter
from .comparison import (
    FirstDifference,
    RecordedRun,
    RunChange,
    RunComparison,
    compare_runs,
    rank_change,
)

SHOWN = 5
"""Changes of one kind that are shown; JSON has all of them (chosen)."""
_NAMES = {
    "throughput": "calls ok per second",
    "seconds": "time of all calls",
    "p50": "call p50",
    "p95": "call p95",
    "p99": "call p99",
    "wait_p50": "wait for a permit p50",
    "wait_p95": "wait for a permit p95",
}
_COUNTS = ("throughput", "attempts", "refused", "wasted")
_STYLES = {"better": "green", "worse": "red", "": ""}
Line = tuple[str, str]
"""A text, and whether it is ``better`` or ``worse``; empty if it is neither."""


def sections(comparison: RunComparison) -> list[tuple[str, list[Line]]]:
    """What changed, as headings with lines; without what did not."""
    if comparison.same:
        return []
    found: list[tuple[str, list[Line]]] = [
        ("settings", _listed(comparison.settings)),
        (
            "promises",
            [
                (f"{_arrow(it)}{f': {it.note}' if it.note else ''}", _sign(rank_change(it)))
                for it in comparison.promises
            ],
        ),
        ("outcomes", [(_arrow(it), _outcome_sign(it)) for it in comparison.outcomes]),
        ("figures", [(_figure(it), _figure_sign(it, comparison)) for it in comparison.figures]),
        ("calls that ended differently", _listed(comparison.calls)),
        ("texts that the model reads", _listed(comparison.texts)),
        (
            "first event that differs",
            _first(comparison.first) if comparison.first is not None else [],
        ),
    ]
    if comparison.first is None and not comparison.same_journal:
        found[-1] = (
            "events",
            [("not compared one by one: a run in real time never repeats its events", "")],
        )
    return [(heading, lines) for heading, lines in found if lines]


def as_dict(comparison: RunComparison) -> dict[str, Any]:
    kinds = ("settings", "promises", "outcomes", "figures", "calls", "texts")
    return {
        "before": comparison.before.name,
        "after": comparison.after.name,
        "same": comparison.same,
        "worse": comparison.worse,
        "sentence": comparison.sentence,
        **{kind: [asdict(change) for change in getattr(comparison, kind)] for kind in kinds},
        "first": None if comparison.first is None else asdict(comparison.first),
    }


def render_comparison(found: Sequence[RunComparison], before: str, after: str) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    worse = sum(comparison.worse for comparison in found)
    same = sum(comparison.same for comparison in found)
    ordered = sorted(found, key=lambda comparison: (not comparison.worse, comparison.same))
    return render_page(
        "compare.html.j2",
        headline=f"{counted(worse, 'run')} got worse" if worse else "No promise got worse",
        before=before,
        after=after,
        facts=[
            ("runs", str(len(found))),
            ("the same", str(same)),
            ("changed", str(len(found) - same)),
        ],
        runs=[(comparison, sections(comparison)) for comparison in ordered],
    )


class CompareReporter(ProgressReporter):
    """Prints each run that changed, and one line about all of them."""

    def finish(
        self, found: Sequence[RunComparison], gone: Sequence[str], new: Sequence[str]
    ) -> None:
        for comparison in found:
            if not comparison.same or len(found) == 1:
                self._print_one(comparison)
        for names, where in ((gone, "first"), (new, "second")):
            if names:
                self.print(f"only in the {where} folder: {', '.join(names)}", "yellow")
        worse = sum(comparison.worse for comparison in found)
        same = sum(comparison.same for comparison in found)
        if len(found) > 1:
            text = (
                f"{counted(len(found), 'run')}: {same} the same, {len(found) - same} "
                f"changed, {worse} worse"
            )
            self.print(text, "bold red" if worse else "green")

    def _print_one(self, comparison: RunComparison) -> None:
        if comparison.before.name == comparison.after.name:
            name = comparison.before.name
        else:
            name = f"{comparison.before.name} -> {comparison.after.name}"
        self.print(f"{name}: {comparison.sentence}", "bold red" if comparison.worse else "bold")
        if (
            comparison.before.journal.header["scenario"]
            != comparison.after.journal.header["scenario"]
        ):
            self.print(
                "  these are runs of different scenarios: calls are matched by their ids", "yellow"
            )
        for heading, lines in sections(comparison):
            self.print(f"  {heading}")
            for line, sign in lines:
                self.print(f"    {line}", _STYLES[sign])
        self.print()


def _sign(change: float) -> str:
    """Return the sign of something of which more is worse."""
    if change > 0:
        return "worse"
    return "better" if change < 0 else ""


def _outcome_sign(change: RunChange) -> str:
    grown = change.after - change.before
    if change.what == "ok":
        return _sign(-grown)
    return _sign(grown) if change.what in FAILURES else ""


def _figure_sign(change: RunChange, comparison: RunComparison) -> str:
    """Shorter is not better where it is because fewer calls got a result."""
    if change.what != "throughput" and any(
        it.what == "ok" and it.after < it.before for it in comparison.outcomes
    ):
        return (
            "worse" if change.what in ("refused", "wasted") and change.after > change.before else ""
        )
    grown = float(change.after) - float(change.before)
    return _sign(-grown if change.what == "throughput" else grown)


def _listed(changes: Sequence[RunChange]) -> list[Line]:
    more = [(f"and {len(changes) - SHOWN} more", "")] if len(changes) > SHOWN else []
    return [*((_arrow(change), "") for change in changes[:SHOWN]), *more]


def _arrow(change: RunChange) -> str:
    return f"{change.what}: {_value(change.before)} -> {_value(change.after)}"


def _value(value: Any) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, str) and value.isprintable() and value:
        text = value
    else:
        text = json.dumps(value, default=str)
    return text if len(text) <= 120 else f"{text[:117]}..."


def _figure(change: RunChange) -> str:
    before = float(change.before)
    after = float(change.after)
    share = f" ({(after - before) / before:+.1%})" if before else ""
    unit = "" if change.what in _COUNTS else " s"
    return f"{_NAMES.get(change.what, change.what)}: {before:.4g}{unit} -> {after:.4g}{unit}{share}"


def _first(first: FirstDifference) -> list[Line]:
    lines = [f"number {first.number}", *(f"  {_event(event)}" for event in first.context)]
    return [
        (line, "") for line in (*lines, f"- {_event(first.before)}", f"+ {_event(first.after)}")
    ]


def _event(event: Event | None) -> str:
    if event is None:
        return "(the journal ends)"
    rest = {key: value for key, value in event.items() if key not in ("at", "source", "event")}
    facts = " ".join(f"{key}={_value(value)}" for key, value in rest.items())
    return f"{event['at']:.6f} {event['source']} {event['event']} {facts}".rstrip()


_NOT_SETTINGS = ("scenario", "about", "incident", "expected", "worlds", "promises")


@command
def compare(
    before: Annotated[
        Path, Argument(metavar="RUN", help="Folder of a run, or of many, as written by --out.")
    ],
    after: Annotated[
        Path, Argument(metavar="RUN", help="The other run, or the other folder of many.")
    ],
    exact: Annotated[
        bool, option("Exit with 1 if anything differs, not only if a promise got worse.")
    ] = False,
    html: Html = None,
    json_file: Json = None,
) -> int:
    Reports(html=html, json=json_file).check()
    pairs, gone, new = _paired_folders(before, after)
    only_before = [path.name for path in gone]
    only_after = [path.name for path in new]
    edited = _edited_lines(pairs)
    with CompareReporter(text_stream(json_file), len(pairs), "comparing") as shown:
        found = list(_compared(pairs, edited, shown))
        shown.finish(found, only_before, only_after)
        for line in edited:
            shown.print(line, "bold red")
    if html is not None:
        write_file(html, render_comparison(found, str(before), str(after)))
    document = {
        "compare": 1,
        "runs": [as_dict(comparison) for comparison in found],
        "only_before": only_before,
        "only_after": only_after,
        "edited": edited,
    }
    write_json(json_file, document)
    if edited or any(comparison.worse for comparison in found):
        return 1
    differs = bool(gone or new) or not all(comparison.same for comparison in found)
    return int(exact and differs)


def _compared(
    pairs: Sequence[tuple[Path, Path]], edited: list[str], shown: CompareReporter
) -> Iterator[RunComparison]:
    """Yield how the runs of each pair compare; if files were ``edited``, add those that cannot be
    read."""
    for number, (old, now) in enumerate(pairs, 1):
        try:
            yield compare_runs(_read_recorded(old), _read_recorded(now))
        except (JournalError, ScenarioError) as error:
            if not edited:
                raise
            edited.append(f"not compared: {error}")
        shown.progress(number)


def _edited_lines(pairs: Sequence[tuple[Path, Path]]) -> list[str]:
    """Say which runs were edited since they were recorded."""
    lines: list[str] = []
    for pair in pairs:
        for folder in pair:
            line = edited_line(folder)
            if line:
                lines.append(line)
    return lines


def _read_recorded(folder: Path) -> RecordedRun:
    """Read one run; raises ScenarioError or JournalError."""
    task, journal, verdicts = read_run(folder)
    settings = {
        key: value for key, value in task.scenario.written.items() if key not in _NOT_SETTINGS
    }
    return RecordedRun(task.name, settings, journal, verdicts)


def _paired_folders(
    before: Path, after: Path
) -> tuple[list[tuple[Path, Path]], list[Path], list[Path]]:
    """Return the runs to compare, and those that only one of the two folders has."""
    if _is_run(before) and _is_run(after):
        return [(before, after)], [], []
    if _is_run(before) != _is_run(after):
        other = after if _is_run(before) else before
        raise BadOption(f"{other}: not a run; compare two runs, or two folders that hold runs")
    olds = _runs_below(before)
    news = _runs_below(after)
    if not set(olds) & set(news):
        raise BadOption(
            f"{before} and {after} have no run of the same name; give the folders of two runs"
        )
    both = [(olds[name], news[name]) for name in olds if name in news]
    return (
        both,
        [olds[name] for name in olds if name not in news],
        [news[name] for name in news if name not in olds],
    )


def _is_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file()


def _runs_below(folder: Path) -> dict[str, Path]:
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{JOURNAL}"))}
    if not found:
        raise BadOption(
            f"{folder}: not a run, and no runs below it; give a folder that `sfusion run "
            "--out` wrote"
        )
    return found
