"""``sfusion compare``: show what changed between two runs.

Settings, promises, outcomes, waits, texts and events are compared. Folders of many runs are compared run by run, by
name. Earlier runs are in `DIR/.history`; see `sfusion history`.

Exit code 0 if no promise got worse (held, then unknown or no longer checked, then broken), 1 if one did or a file is
not as its run wrote it; with --exact 1 if anything differs. 2 if the input is wrong.

Example: sfusion compare runs-before runs-after --html changes.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import text_stream, write_json
from sfusion.harness.commandline.options import Html, Json
from sfusion.harness.errors import BadOption
from sfusion.harness.lab.runs.directory import edited_line, read_run
from sfusion.harness.lab.scenarios.reading import JOURNAL
from sfusion.harness.reports import Reports
from sfusion.harness.studies.compare.comparison import RecordedRun, compare_runs
from sfusion.harness.studies.compare.telling import CompareReporter, as_dict, render_comparison

_NOT_SETTINGS = ("scenario", "about", "incident", "expected", "worlds", "promises")


@command
def compare(
    before: Annotated[Path, Argument(metavar="RUN", help="Folder of a run, or of many, as written by --out.")],
    after: Annotated[Path, Argument(metavar="RUN", help="The other run, or the other folder of many.")],
    exact: Annotated[bool, option("Exit with 1 if anything differs, not only if a promise got worse.")] = False,
    html: Html = None,
    json_file: Json = None,
) -> int:
    Reports(html=html, json=json_file).check()
    pairs, gone, new = _paired_folders(before, after)
    found = []
    with CompareReporter(text_stream(json_file), len(pairs), "comparing") as shown:
        for number, (old, now) in enumerate(pairs, 1):
            found.append(compare_runs(_read_recorded(old), _read_recorded(now)))
            shown.progress(number)
        shown.finish(found, [path.name for path in gone], [path.name for path in new])
        edited = list(filter(None, (edited_line(folder) for pair in pairs for folder in pair)))
        for line in edited:
            shown.print(line, "bold red")
    if html is not None:
        write_file(html, render_comparison(found, str(before), str(after)))
    document = {
        "compare": 1,
        "runs": [as_dict(one) for one in found],
        "only_before": [path.name for path in gone],
        "only_after": [path.name for path in new],
        "edited": edited,
    }
    write_json(json_file, document)
    worse = any(one.worse for one in found)
    return 1 if worse or edited or (exact and (gone or new or not all(one.same for one in found))) else 0


def _read_recorded(folder: Path) -> RecordedRun:
    """Read one run; raises ScenarioError or JournalError."""
    task, journal, verdicts = read_run(folder)
    settings = {key: value for key, value in task.scenario.written.items() if key not in _NOT_SETTINGS}
    return RecordedRun(task.name, settings, journal, verdicts)


def _paired_folders(before: Path, after: Path) -> tuple[list[tuple[Path, Path]], list[Path], list[Path]]:
    """Return the runs to compare, and those that only one of the two folders has."""
    if _is_run(before) and _is_run(after):
        return [(before, after)], [], []
    if _is_run(before) != _is_run(after):
        other = after if _is_run(before) else before
        raise BadOption(f"{other}: not a run; compare two runs, or two folders that hold runs")
    olds, news = _runs_below(before), _runs_below(after)
    if not set(olds) & set(news):
        raise BadOption(f"{before} and {after} have no run of the same name; give the folders of two runs")
    both = [(olds[name], news[name]) for name in olds if name in news]
    return both, [olds[name] for name in olds if name not in news], [news[name] for name in news if name not in olds]


def _is_run(folder: Path) -> bool:
    return (folder / JOURNAL).is_file()


def _runs_below(folder: Path) -> dict[str, Path]:
    found = {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{JOURNAL}"))}
    if not found:
        raise BadOption(f"{folder}: not a run, and no runs below it; give a folder that `sfusion run --out` wrote")
    return found
