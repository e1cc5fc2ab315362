"""``sfusion history``: verdicts and figures of a scenario over its runs and commits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile


def history(
    scenarios: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SCENARIO", help="Names of scenarios, or of single cells; by default all of the folder."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder that was given to `sfusion run --out`.")] = Path("runs"),
    html: Annotated[Path | None, typer.Option(help="Write a page with plots and tables.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the plots as one SVG file.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Show how verdicts and figures of scenarios changed over runs and commits.

    `sfusion run --out DIR` keeps a record of each run, and its files if its journal differs from the next one's:
    the last 20 of each scenario, or as many as `--history N` says.

    Exit code 0, or 2 if there is no such history.
    """
    import sys

    from sfusion.harness.atomic_files import write_file
    from sfusion.harness.commandline.json_answer import is_stdout, write_json
    from sfusion.harness.reports.files import check_file
    from sfusion.harness.reports.line_chart import svg_file
    from sfusion.harness.studies.history.store import read_histories
    from sfusion.harness.studies.history.telling import HistoryReporter, charts, render_history

    found = read_histories(out, scenarios or [])
    to_stdout = is_stdout(json_file)
    for option, file in (("--html", html), ("--svg", svg), ("--json", None if to_stdout else json_file)):
        check_file(option, file)
    with HistoryReporter(sys.stderr if to_stdout else sys.stdout, len(found)) as shown:
        shown.finish(found, detailed=bool(scenarios) or len(found) == 1)
    if html is not None:
        write_file(html, render_history(found, str(out)))
    if svg is not None:
        write_file(svg, svg_file([chart for one in found for chart in charts(one, named=len(found) > 1)]))
    if json_file is not None:
        write_json(json_file, {"history": 1, "scenarios": {one.name: one.as_list() for one in found}})
