"""``sfusion look``: show how the tool calls of a training run ended.

Outcomes over time, when it got worse, which sandbox. Reads event logs of the tool, the fakes and the proxy, journals of
runs and proxies, rollout dumps, what Sandbox Fusion prints, and access logs of uvicorn and nginx, also compressed with
gzip or wrapped by Docker. The kind of a log is recognised by its content. As a log, `-` is stdin; for `--html`
and `--json` it is stdout.

Example: sfusion look /shared/logs --html friday.html
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sfusion.harness.commandline.declaring import command
from sfusion.harness.commandline.json_answer import is_stdout, text_stream, write_answer, write_json
from sfusion.harness.commandline.options import Html, Json, Logs
from sfusion.harness.errors import BadOption
from sfusion.harness.reports import Reports
from sfusion.harness.studies.look.digest import Digest
from sfusion.harness.studies.look.overview import overview
from sfusion.harness.studies.look.page import render_log
from sfusion.harness.studies.look.reading import LogReader, UnreadableLines, with_stdin
from sfusion.harness.studies.look.telling import ROWS, LookReporter


@command
def look(logs: Logs, html: Html = None, json_file: Json = None) -> None:
    to_stdout = is_stdout(html)
    if to_stdout and is_stdout(json_file):
        raise BadOption("--html and --json cannot both go to stdout")
    Reports(html=None if to_stdout else html, json=json_file).check()
    with with_stdin(logs) as files:
        _look(logs, files, html, json_file)


def _look(logs: Sequence[Path], files: Sequence[Path], html: Path | None, json_file: Path | None) -> None:
    problems = UnreadableLines()
    logs_given = " ".join(shlex.quote(str(one)) for one in logs)
    reader, digest = LogReader(files, problems, lambda so_far: reporter.read(so_far)), Digest()
    stream = text_stream(html if is_stdout(html) else json_file)
    with LookReporter(stream, reader.total_bytes) as reporter:
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
            write_answer(html, render_log(digest, found))
        write_json(json_file, found.as_data())
        following = (
            f"sfusion learn {logs_given} --to learned.yaml  # names the cause, and writes a scenario that reproduces it"
        )
        reporter.tell(found, overview(digest, stretches=ROWS).over_time, following)
        for problem in problems.first:
            reporter.print(problem, "dim")
