"""The reports of a trial: JUnit XML, a Markdown summary and an HTML page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..atomic_files import write_file
from ..core.verdict import Verdict
from ..lab.runs.directory import written_run
from ..lab.runs.reporting import report_of_result
from ..reports.files import junit as junit_of
from ..reports.files import markdown, write_page
from ..reports.html import render_page
from ..reports.run_report import RunReport
from .trial import TrialResult


def write_reports(
    result: TrialResult, *, html: Path | None, junit: Path | None, summary: Path | None
) -> None:
    """Write the files that are wanted."""
    if html is not None:
        write_file(html, render_page("judge.html.j2", ("hunt.css",), result=result))
    if junit is not None:
        write_file(junit, junit_of([report_of(result)]))
    if summary is not None:
        rows = [
            f"| {end} | {_cell(text)} |" for end, texts in result.wordings.items() for text in texts
        ]
        lines = [
            "",
            "<details><summary>Wordings</summary>",
            "",
            "| end | wording |",
            "|---|---|",
            *rows,
            "",
            "</details>",
        ]
        write_file(summary, markdown([report_of(result)]) + "\n".join(lines) + "\n")


def write_runs(result: TrialResult, out: Path) -> None:
    """Write each scenario as a run of its own: scenario, journal, verdicts and a page with a
    timeline."""
    for run in result.runs:
        with written_run(run, out) as folder:
            write_page(report_of_result(run, folder))


def report_of(result: TrialResult) -> RunReport:
    """Return a trial as a run. What its shape leaves unknown, and what is accepted, neither passes
    nor fails."""
    events = [
        {"at": result.seconds * number / max(result.calls, 1), "event": "called"}
        for number in range(result.calls)
    ]
    verdicts = [_verdict(result, one) for one in result.verdicts]
    verdicts += [Verdict("baseline", "broken", text) for text in result.changes]
    return RunReport(
        f"judge {result.name}",
        verdicts,
        about=result.about,
        world=result.world,
        seed=result.seed,
        events=events,
        wall_seconds=result.seconds,
    )


def _verdict(result: TrialResult, one: Verdict) -> Verdict:
    told_apart = " ".join(value for _, value in one.how.identity)
    name = (
        f"{one.promise} {one.how.kind} {told_apart}".strip()
        if one.state == "broken"
        else one.promise
    )
    state = result.state_of(one)
    if state == "accepted":
        return replace(
            one, promise=name, state="not_applicable", sentence=f"accepted: {one.sentence}"
        )
    return (
        replace(one, promise=name, state="not_applicable")
        if state == "unknown"
        else replace(one, promise=name)
    )


def _cell(text: str) -> str:
    quoted = f"{text!r:.200}".replace("|", "\\|").replace("`", "'")
    return f"`{quoted}`"
