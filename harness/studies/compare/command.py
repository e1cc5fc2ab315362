"""``sfusion compare``: what changed between recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile


def compare(
    before: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run, or of many, as written by --out.")],
    after: Annotated[Path, typer.Argument(metavar="RUN", help="The other run, or the other folder of many.")],
    exact: Annotated[
        bool, typer.Option("--exact", help="Exit with 1 if anything differs, not only if a promise got worse.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write the comparison as a page.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show what changed from one run to another: settings, promises, outcomes, waits, texts, events.

    Folders of many runs are compared run by run, by name. Earlier runs are in `DIR/.history`; see `sfusion history`.

    Exit code 0 if no promise got worse (held, then unknown or no longer checked, then broken), 1 if one did; with
    --exact 1 if anything differs. 2 if the input is wrong.
    """
    import sys

    from sfusion.harness.atomic_files import write_file
    from sfusion.harness.commandline.json_answer import is_stdout, write_json
    from sfusion.harness.reports.files import check_file
    from sfusion.harness.studies.compare.comparison import compare_runs
    from sfusion.harness.studies.compare.reading import paired_folders, read_recorded
    from sfusion.harness.studies.compare.telling import CompareReporter, as_dict, render_comparison

    to_stdout = is_stdout(json_file)
    check_file("--html", html)
    check_file("--json", None if to_stdout else json_file)
    pairs, gone, new = paired_folders(before, after)
    found = []
    with CompareReporter(sys.stderr if to_stdout else sys.stdout, len(pairs)) as shown:
        for number, (old, now) in enumerate(pairs, 1):
            found.append(compare_runs(read_recorded(old), read_recorded(now)))
            shown.compared(number)
        shown.finish(found, [path.name for path in gone], [path.name for path in new])
    if html is not None:
        write_file(html, render_comparison(found, str(before), str(after)))
    if json_file is not None:
        document = {
            "compare": 1,
            "runs": [as_dict(one) for one in found],
            "only_before": [path.name for path in gone],
            "only_after": [path.name for path in new],
        }
        write_json(json_file, document)
    worse = any(one.worse for one in found)
    raise typer.Exit(1 if worse or (exact and (gone or new or not all(one.same for one in found))) else 0)
