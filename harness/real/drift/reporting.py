"""Drift reports: a table for the terminal, JSON."""

from __future__ import annotations

import json
from typing import Any, TextIO

from sfusion.harness.real.drift.grading import GRADES
from sfusion.harness.real.drift.judging import DriftFinding, DriftReport
from sfusion.harness.terminal import ProgressReporter

_STYLES = {"breaking": "bold red", "visible": "yellow", "cosmetic": "dim", "variable": "dim"}
_MAX_ROWS = 200
"""Differences shown in a table; JSON has all of them."""


def drift_headline(report: DriftReport) -> str:
    """The summary line."""
    counts = ", ".join(
        f"{report.count(grade)} {grade}" for grade in GRADES if grade != "variable" or report.count(grade)
    )
    probes = len({finding.difference.probe for finding in report.findings})
    return (
        f"{counts}: differences in {probes} of {report.compared} probes compared, "
        f"{len(report.not_comparable)} not comparable"
    )


def print_report(report: DriftReport, out: TextIO) -> None:
    """Print the differences, with colours only on a terminal."""
    terminal = ProgressReporter(out, 0, "")
    terminal.print(f"{report.left} against {report.right}", "bold")
    for note in report.notes:
        terminal.print(note, "dim")
    if report.ranked:
        terminal.print()
        shown = report.ranked[:_MAX_ROWS]
        head = ("grade", "probe", "place", report.left, report.right)
        terminal.table(map(_row, shown), head, [_STYLES[finding.grade] for finding in shown], texts=len(head))
        if len(report.ranked) > _MAX_ROWS:
            terminal.print(f"... and {len(report.ranked) - _MAX_ROWS} more; --json FILE has all of them")
        terminal.print()
        for rule in dict.fromkeys(finding.rule for finding in report.ranked):
            terminal.print(f"{rule.grade}: {rule.name}: {rule.because}")
    if report.not_comparable:
        terminal.print()
        for reason in dict.fromkeys(reason for _, reason in report.not_comparable):
            probes = ", ".join(probe for probe, why in report.not_comparable if why == reason)
            terminal.print(f"not comparable: {reason}: {probes}")
    terminal.print()
    terminal.print(drift_headline(report))
    out.flush()


def _row(finding: DriftFinding) -> tuple[str, str, str, str, str]:
    difference = finding.difference
    return finding.grade, difference.probe, difference.place, *difference.shown(44)


def as_json(report: DriftReport) -> str:
    content = {
        "drift": 1,
        "left": report.left,
        "right": report.right,
        "notes": list(report.notes),
        "compared": report.compared,
        "counts": {grade: report.count(grade) for grade in GRADES},
        "differences": [_json(finding) for finding in report.findings],
        "not_comparable": [{"probe": probe, "reason": reason} for probe, reason in report.not_comparable],
    }
    return json.dumps(content, indent=2) + "\n"


def _json(finding: DriftFinding) -> dict[str, Any]:
    return {
        **vars(finding.difference),
        "grade": finding.grade,
        "rule": finding.rule.name,
        "because": finding.rule.because,
    }
