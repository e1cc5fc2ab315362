"""``sfusion look``: what a log of production says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from sfusion.harness.commandline.json_answer import JsonFile, is_stdout, write_json


def look(
    logs: Annotated[list[Path], typer.Argument(metavar="LOG", help="Log files, or folders of them.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page of the log.")] = None,
    json: JsonFile = None,
) -> None:
    """See what happened to the tool calls of a training: outcomes over time, when it got worse, which sandbox.

    Reads event logs of the tool, the fakes and the proxy, journals of runs and proxies, rollout dumps, and access
    logs of uvicorn and nginx, also compressed with gzip. The kind of a log is recognised by its content.
    """
    import sys

    from sfusion.harness.atomic_files import write_file
    from sfusion.harness.reports import Reports
    from sfusion.harness.studies.look.digest import Digest
    from sfusion.harness.studies.look.overview import overview
    from sfusion.harness.studies.look.page import render_log
    from sfusion.harness.studies.look.reading import LogReader, UnreadableLines
    from sfusion.harness.studies.look.telling import ROWS, LookReporter

    Reports(html=html, json=None if is_stdout(json) else json).check()
    problems = UnreadableLines()
    reader, digest = LogReader(logs, problems, lambda so_far: reporter.read(so_far)), Digest()
    with LookReporter(sys.stderr if is_stdout(json) else sys.stdout, reader.total_bytes) as reporter:
        for record in reader:
            digest.add(record)
        found = replace(
            overview(digest),
            files=[str(file) for file in reader.files],
            lines=reader.lines,
            skipped=reader.skipped,
            problems=problems.count,
            left_out=reader.left_out,
        )
        # Files first: a summary that is piped into `head` ends there.
        if html is not None:
            write_file(html, render_log(digest, found))
        if json is not None:
            write_json(json, found.as_data())
        reporter.tell(found, overview(digest, stretches=ROWS).over_time)
        for problem in problems.first:
            reporter.print(problem, "dim")
