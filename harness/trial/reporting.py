"""The reports of a trial: progress, JUnit XML, a Markdown summary and an HTML page."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TextIO
from urllib.parse import quote

from ..atomic_files import write_file
from ..core.journal import PAGE
from ..core.verdict import Verdict
from ..lab.runs.directory import written_run
from ..lab.runs.reporting import report_of_result
from ..reports.files import escaped, markdown, write_page
from ..reports.files import junit as junit_of
from ..reports.html import render_page
from ..reports.run_report import RunReport
from ..terminal import ProgressReporter
from .meaning import SHOWN
from .result import TrialResult
from .trial import FIRST_CALL, bundled_scenes

_TOLERATED = ("unknown", "accepted")
"""States that neither pass nor fail, though the promise applies to the client."""


class TrialReporter(ProgressReporter):
    """Shows on a terminal which step of a trial is made, and how long it has taken so far."""

    def __init__(self, out: TextIO) -> None:
        super().__init__(out, len(bundled_scenes()), "judging")
        self._done = 0

    def tell(self, step: str) -> None:
        """Show the step that begins."""
        self.progress(self._done, step)
        if step != FIRST_CALL:
            self._done += 1


def write_reports(
    result: TrialResult,
    *,
    html: Path | None,
    junit: Path | None,
    summary: Path | None,
    out: Path | None = None,
) -> None:
    """Write the files that are wanted. ``out`` is the folder of the runs, which the page links."""
    if html is not None:
        pages = {} if out is None else _pages(result, html, out)
        write_file(html, render_page("judge.html.j2", ("hunt.css",), result=result, pages=pages))
    if junit is not None:
        write_file(junit, junit_of([report_of(result)]))
    if summary is not None:
        lines = ["", *_meaning_lines(result), *_undecided_lines(result)]
        lines += ["", "<details><summary>Wordings</summary>", "", "| end | wording |", "|---|---|"]
        for end, texts in result.wordings.items():
            lines += [f"| {end} | {_cell(text)} |" for text in texts]
        lines += ["", "</details>"]
        write_file(summary, markdown([report_of(result)]) + "\n".join(lines) + "\n")


def _meaning_lines(result: TrialResult) -> list[str]:
    """Return what the findings mean, as a list in Markdown."""
    lines = [] if result.grade is None else [f"**{result.name} {result.grade}.**", ""]
    for meaning in result.meanings[:SHOWN]:
        lines.append(f"1. {meaning.headline}. A right client {meaning.remedy}")
    return lines


def _undecided_lines(result: TrialResult) -> list[str]:
    """Return what could not be told, line by line, and what does not apply, in one line."""
    unknown = [verdict for verdict in result.verdicts if verdict.state == "unknown"]
    absent = [verdict for verdict in result.verdicts if verdict.state == "not_applicable"]
    lines = ["", "Unknown, because no scene showed it:", ""] if unknown else []
    lines += [f"- `{verdict.promise}`: {escaped(verdict.sentence)}" for verdict in unknown]
    if absent:
        names = ", ".join(f"`{verdict.promise}`" for verdict in absent)
        lines += ["", f"Does not apply ({len(absent)}): {names}"]
    return lines


def _pages(result: TrialResult, html: Path, out: Path) -> dict[str, str]:
    """Return the address of each run's page, as seen from the page of the trial."""
    here = html.resolve().parent
    found = {}
    for run in result.runs:
        page = (out / run.task.folder / PAGE).resolve()
        found[run.task.scenario.scenario] = quote(Path(os.path.relpath(page, here)).as_posix())
    return found


def write_runs(result: TrialResult, out: Path) -> None:
    """Write each scenario as a run of its own: scenario, journal, verdicts and a page with a
    timeline."""
    for run in result.runs:
        with written_run(run, out) as folder:
            write_page(report_of_result(run, folder))


def report_of(result: TrialResult) -> RunReport:
    """Return a trial as a run. What could not be told, and what is accepted, neither passes nor
    fails."""
    events = [
        {"at": result.seconds * number / max(result.calls, 1), "event": "called"}
        for number in range(result.calls)
    ]
    named = [(result.state_of(verdict), _named(verdict)) for verdict in result.verdicts]
    verdicts = [verdict for state, verdict in named if state not in _TOLERATED]
    verdicts += [Verdict("baseline", "broken", text) for text in result.changes]
    return RunReport(
        f"judge {result.name}",
        verdicts,
        about=result.about,
        world=result.world,
        seed=result.seed,
        events=events,
        wall_seconds=result.seconds,
        place=result.place,
        tolerated=[pair for pair in named if pair[0] in _TOLERATED],
    )


def _named(verdict: Verdict) -> Verdict:
    """Return a verdict with the name of a test: one promise can be broken in several ways."""
    if verdict.state != "broken":
        return verdict
    told_apart = " ".join(value for _, value in verdict.how.identity)
    name = f"{verdict.promise} {verdict.how.kind} {told_apart}".strip()
    return replace(verdict, promise=name)


def _cell(text: str) -> str:
    quoted = f"{text!r:.200}".replace("|", "\\|").replace("`", "'")
    return f"`{quoted}`"
