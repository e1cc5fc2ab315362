"""``sfusion history``: show how verdicts and figures of scenarios changed over runs and commits.

`sfusion run --out DIR` keeps a record of each run, and its files if its journal differs from the next one's: the last
20 of each scenario, or as many as `--history N` says.

Exit code 0, or 2 if there is no such history.

Example: sfusion history throttled-gateway --out runs --html history.html
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command, option
from sfusion.harness.commandline.json_answer import text_stream, write_json
from sfusion.harness.commandline.options import Html, Json
from sfusion.harness.reports import Reports
from sfusion.harness.studies.history.store import read_histories
from sfusion.harness.studies.history.telling import HistoryReporter, render_history


@command
def history(
    scenarios: Annotated[
        list[str] | None,
        Argument(metavar="SCENARIO", help="Names of scenarios, or of single cells; by default all of the folder."),
    ] = None,
    out: Annotated[Path, option("The folder that was given to `sfusion run --out`.", "DIR")] = Path("runs"),
    html: Html = None,
    json_file: Json = None,
) -> None:
    found = read_histories(out, scenarios or [])
    Reports(html=html, json=json_file).check()
    with HistoryReporter(text_stream(json_file), len(found), "history") as shown:
        shown.finish(found, detailed=bool(scenarios) or len(found) == 1)
    if html is not None:
        write_file(html, render_history(found, str(out)))
    write_json(json_file, {"history": 1, "scenarios": {one.name: one.as_list() for one in found}})
