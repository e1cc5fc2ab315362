"""Drift reports: a table for the terminal, JSON, Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
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
    accepted = len(report.findings) - len(report.open)
    known = f", {accepted} accepted" if accepted else ""
    probes = len({finding.difference.probe for finding in report.findings})
    return (
        f"{counts}{known}: differences in {probes} of {report.compared} probes compared, "
        f"{len(report.not_comparable)} not comparable"
    )


def print_report(report: DriftReport, out: TextIO) -> None:
    """Print the differences, with colours only on a terminal."""
    terminal = ProgressReporter(out, 0, "")
    terminal.print(f"{report.left} against {report.right}", "bold")
    for note in report.notes:
        terminal.print(note, "dim")
    if report.open:
        terminal.print()
        shown = report.open[:_MAX_ROWS]
        head = ("grade", "probe", "place", report.left, report.right)
        terminal.table(map(_row, shown), head, [_STYLES[finding.grade] for finding in shown], texts=len(head))
        if len(report.open) > _MAX_ROWS:
            terminal.print(f"... and {len(report.open) - _MAX_ROWS} more; --json FILE has all of them")
        terminal.print()
        for rule in dict.fromkeys(finding.rule for finding in report.open):
            terminal.print(f"{rule.grade}: {rule.name}: {rule.because}")
    if report.not_comparable:
        terminal.print()
        for reason in dict.fromkeys(reason for _, reason in report.not_comparable):
            probes = ", ".join(probe for probe, why in report.not_comparable if why == reason)
            terminal.print(f"not comparable: {reason}: {probes}")
    for one in report.unused:
        terminal.print(f"accepted, but no longer found: {one.where}: {one.probe} {one.place}")
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
        "unused_acceptances": [{"probe": one.probe, "place": one.place, "at": one.where} for one in report.unused],
    }
    return json.dumps(content, indent=2) + "\n"


def _json(finding: DriftFinding) -> dict[str, Any]:
    return {
        **vars(finding.difference),
        "grade": finding.grade,
        "rule": finding.rule.name,
        "because": finding.rule.because,
        "accepted": finding.accepted,
    }


def as_markdown(report: DriftReport) -> str:
    """A table that fits into a comment on a pull request."""
    lines = [f"### Drift: {_cell(report.left)} against {_cell(report.right)}", "", drift_headline(report), ""]
    lines += [f"{note}\n" for note in report.notes]
    if report.open:
        lines += [f"| grade | probe | place | {_cell(report.left)} | {_cell(report.right)} |", "|---|---|---|---|---|"]
        for finding in report.open[:_MAX_ROWS]:
            grade, probe, place, left, right = _row(finding)
            lines.append(f"| {grade} | {_cell(probe)} | {_code(place)} | {_code(left)} | {_code(right)} |")
        lines.append("")
    if report.not_comparable:
        reasons = Counter(reason for _, reason in report.not_comparable)
        lines += [f"- not comparable, {count}: {_cell(reason)}" for reason, count in reasons.most_common()]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    escaped = "".join(f"\\{sign}" if sign in "\\`*_{}[]<>#|!~@" else sign for sign in text)
    return escaped.replace("\n", " ")


def _code(text: str) -> str:
    """Write code that cannot break out of its cell."""
    ticks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    inner = text.replace("|", "\\|")
    return f"{ticks} {inner} {ticks}" if len(ticks) > 1 else f"`{inner}`"
