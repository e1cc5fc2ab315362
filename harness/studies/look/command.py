"""``sfusion look``: show what happened to the tool calls of a training.

Outcomes over time, when it got worse, which sandbox. Reads event logs of the tool, the fakes and the proxy, journals of
runs and proxies, rollout dumps, and access logs of uvicorn and nginx, also compressed with gzip. The kind of a log is
recognised by its content.

Example: sfusion look /shared/logs --html friday.html
"""

from __future__ import annotations

from dataclasses import replace

from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.declaring import command
from sfusion.harness.commandline.json_answer import text_stream, write_json
from sfusion.harness.commandline.options import Html, Json, Logs
from sfusion.harness.reports import Reports
from sfusion.harness.studies.look.digest import Digest
from sfusion.harness.studies.look.overview import overview
from sfusion.harness.studies.look.page import render_log
from sfusion.harness.studies.look.reading import LogReader, UnreadableLines
from sfusion.harness.studies.look.telling import ROWS, LookReporter


@command
def look(logs: Logs, html: Html = None, json_file: Json = None) -> None:
    Reports(html=html, json=json_file).check()
    problems = UnreadableLines()
    reader, digest = LogReader(logs, problems, lambda so_far: reporter.read(so_far)), Digest()
    with LookReporter(text_stream(json_file), reader.total_bytes) as reporter:
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
        write_json(json_file, found.as_data())
        reporter.tell(found, overview(digest, stretches=ROWS).over_time)
        for problem in problems.first:
            reporter.print(problem, "dim")
