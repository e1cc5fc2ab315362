"""Drift reports: a table for the terminal, JSON, Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, TextIO

from sfusion.harness.drift.grading import GRADES
from sfusion.harness.drift.judging import DriftFinding, DriftReport

_STYLES = {"breaking": "bold red", "visible": "yellow", "cosmetic": "dim"}
_MAX_ROWS = 200
"""Differences shown in a table; JSON has all of them."""


def headline(report: DriftReport) -> str:
    """The summary line."""
    counts = ", ".join(f"{report.count(grade)} {grade}" for grade in GRADES)
    accepted = len(report.findings) - len(report.open)
    known = f", {accepted} accepted" if accepted else ""
    probes = len({finding.difference.probe for finding in report.findings})
    return (
        f"{counts}{known}: differences in {probes} of {report.compared} probes compared, "
        f"{len(report.not_comparable)} not comparable"
    )


def print_report(report: DriftReport, out: TextIO) -> None:
    """Print the table, with colours only on a terminal."""
    if out.isatty():
        _print_rich(report, out)
        return
    encoding = out.encoding or "utf-8"

    def say(text: str) -> None:
        out.write(text.encode(encoding, "replace").decode(encoding) + "\n")

    say(f"{report.left} against {report.right}")
    for note in report.notes:
        say(note)
    rows = [("grade", "probe", "place", report.left, report.right), *map(_row, report.open[:_MAX_ROWS])]
    if len(rows) > 1:
        say("")
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        for row in rows:
            say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    _rest(report, say)
    out.flush()


def _print_rich(report: DriftReport, out: TextIO) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, force_terminal=True, highlight=False)
    console.print(Text(f"{report.left} against {report.right}", "bold"))
    for note in report.notes:
        console.print(Text(note, "dim"))
    if report.open:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for title in ("grade", "probe", "place", report.left, report.right):
            table.add_column(Text(title), overflow="fold")
        for finding in report.open[:_MAX_ROWS]:
            grade, *cells = _row(finding)
            table.add_row(Text(grade, _STYLES[finding.grade]), *map(Text, cells))
        console.print(table)
    _rest(report, lambda text: console.print(Text(text), soft_wrap=True))


def _rest(report: DriftReport, say: Callable[[str], None]) -> None:
    left_out = len(report.open) - _MAX_ROWS
    if left_out > 0:
        say(f"... and {left_out} more; --json FILE has all of them")
    if report.open:
        say("")
        seen = dict.fromkeys(finding.rule for finding in report.open)
        for rule in seen:
            say(f"{rule.grade}: {rule.name}: {rule.because}")
    if report.not_comparable:
        say("")
        for reason, probes in _by_reason(report).items():
            say(f"not comparable: {reason}: {', '.join(probes)}")
    for one in report.unused:
        say(f"accepted, but no longer found: {one.where}: {one.probe} {one.place}")
    say("")
    say(headline(report))


def _row(finding: DriftFinding) -> tuple[str, str, str, str, str]:
    difference = finding.difference
    return finding.grade, difference.probe, difference.place, *difference.shown(44)


def _by_reason(report: DriftReport) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for probe, reason in report.not_comparable:
        found.setdefault(reason, []).append(probe)
    return found


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
    difference = finding.difference
    return {
        "probe": difference.probe,
        "place": difference.place,
        "kind": difference.kind,
        "left": difference.left,
        "right": difference.right,
        "grade": finding.grade,
        "rule": finding.rule.name,
        "because": finding.rule.because,
        "accepted": finding.accepted,
    }


def as_markdown(report: DriftReport) -> str:
    """A table that fits into a comment on a pull request."""
    lines = [f"### Drift: {_cell(report.left)} against {_cell(report.right)}", "", headline(report), ""]
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
