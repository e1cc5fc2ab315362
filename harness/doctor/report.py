"""Reports on examinations: for a terminal, a build log, or a program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sfusion.harness.doctor.examination import Check, Examination
from sfusion.harness.doctor.finding import Finding, Severity
from sfusion_tools._version import __version__

_STYLES = {Severity.BREAKS: "bold red", Severity.HURTS: "yellow", Severity.NOTE: "cyan"}
FINE, BROKEN, UNREACHED = 0, 1, 3


def exit_code(examinations: Sequence[Examination]) -> int:
    """0 if nothing breaks training, 1 if something does, 3 if no sandbox could be reached at all."""
    if examinations and all(one.reached is False for one in examinations):
        return UNREACHED
    return BROKEN if any(one.breaks for one in examinations) else FINE


def as_json(examinations: Sequence[Examination]) -> str:
    document = {
        "sfusion": __version__,
        "exit_code": exit_code(examinations),
        "sandboxes": [_document(one) for one in examinations],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _document(one: Examination) -> dict[str, Any]:
    return {
        "url": one.settings.label,
        "from": one.settings.source or None,
        "reached": one.reached,
        "findings": [asdict(finding) for finding in ranked(one.findings)],
        "examined": one.examined,
        "not_examined": [{"check": check, "why": why} for check, why in one.not_examined],
        "measured": one.measured,
    }


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by severity, the worst first."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def headline(examinations: Sequence[Examination]) -> str:
    """The summary line."""
    counts = Counter(finding.severity for one in examinations for finding in one.findings)
    broken, hurting, notes = counts[Severity.BREAKS], counts[Severity.HURTS], counts[Severity.NOTE]
    parts = []
    if broken:
        parts.append(f"{broken} finding{'s break' if broken > 1 else ' breaks'} training")
    else:
        parts.append("nothing found that breaks training")
    if hurting:
        parts.append(f"{hurting} hurt{'' if hurting > 1 else 's'} it")
    if notes:
        parts.append(f"{notes} note{'s' if notes > 1 else ''}")
    left = sum(len(one.not_examined) for one in examinations)
    return ", ".join(parts) + (f"; {left} check{'s' if left > 1 else ''} not made" if left else "")


class PlainReporter:
    """Lines without colour: what a build log can hold."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._out, self._total = out, total

    def __enter__(self) -> PlainReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def opens(self, examination: str) -> None:
        """A sandbox is about to be examined."""
        self._say(f"examining {examination}")

    def begins(self, check: Check, number: int) -> None:
        """A line is written when it ends."""

    def announces(self, text: str) -> None:
        """Say it at once."""
        self._say(f"        {text}")

    def ends(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        """One check is done."""
        self._say(f"[{number:>2}/{self._total}] {check.name:<16} {_outcome(found, why_not)}")

    def stops(self, left: Sequence[Check], why: str) -> None:
        """Nothing further can be examined."""
        if left:
            self._say(f"        {_left(left, why)}")

    def finish(self, examinations: Sequence[Examination]) -> None:
        """Print the findings, the worst first, and the last line."""
        for one in examinations:
            self._say("")
            if len(examinations) > 1:
                self._say(f"{_title(one)}:")
            for finding in ranked(one.findings):
                self._say(f"{finding.severity.value}: {finding.id}")
                for label, text in _lines(finding):
                    self._say(f"  {label:<9} {text}")
        self._say("")
        self._say(headline(examinations))

    def _say(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        self._out.write(shown(text).encode(encoding, "replace").decode(encoding) + "\n")
        self._out.flush()


class LiveReporter:
    """The running check while it runs, and a coloured table at the end."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._console = Console(file=out, force_terminal=True, highlight=False)
        self._total = total
        self._status = self._console.status("")

    def __enter__(self) -> LiveReporter:
        self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._status.stop()

    def opens(self, examination: str) -> None:
        """A sandbox is about to be examined."""
        self._console.print(Text(f"examining {shown(examination)}", "bold"))

    def begins(self, check: Check, number: int) -> None:
        """Show what runs."""
        self._status.update(Text(f"{number}/{self._total} {check.name}"))

    def announces(self, text: str) -> None:
        """Say it at once."""
        self._console.print(Text(f"  {shown(text)}", "dim"))

    def ends(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        """One check is done."""
        worst = ranked(found)[0].severity if found else None
        style = _STYLES[worst] if worst is not None else ("dim" if why_not else "green")
        line = Text(f"  {check.name:<16} ").append(shown(_outcome(found, why_not)), style)
        self._console.print(line, soft_wrap=True)

    def stops(self, left: Sequence[Check], why: str) -> None:
        """Nothing further can be examined."""
        if left:
            self._console.print(Text(f"  {shown(_left(left, why))}", "dim"))

    def finish(self, examinations: Sequence[Examination]) -> None:
        """Print the table and the last line."""
        self._status.stop()
        for one in examinations:
            if not one.findings:
                continue
            table = Table(title=shown(_title(one)) if len(examinations) > 1 else None, show_lines=True)
            table.add_column("", no_wrap=True)
            table.add_column("finding", no_wrap=True)
            table.add_column("what was seen, what it does to training, what to change", overflow="fold")
            for finding in ranked(one.findings):
                text = Text("\n").join(
                    Text(shown(text), "" if label == "seen" else "dim" if label == "training" else "bold")
                    for label, text in _lines(finding)
                )
                table.add_row(Text(finding.severity.value, _STYLES[finding.severity]), finding.id, text)
            self._console.print(table)
        style = "bold red" if any(one.breaks for one in examinations) else "green"
        self._console.print(Text(headline(examinations), style))


def reporter(out: TextIO, total: int) -> PlainReporter | LiveReporter:
    """Colours and live updates for a terminal, plain lines otherwise."""
    return LiveReporter(out, total) if out.isatty() else PlainReporter(out, total)


def write_json(path: Path, examinations: Sequence[Examination]) -> None:
    """Raises OSError."""
    path.write_text(as_json(examinations), encoding="utf-8")


def shown(text: str) -> str:
    """Escape control characters, so that the text stays on one line and cannot control a terminal."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _title(one: Examination) -> str:
    return one.settings.label + (f" ({one.settings.source})" if one.settings.source else "")


def _outcome(found: Sequence[Finding], why_not: str) -> str:
    if why_not:
        return f"not examined: {why_not}"
    return ", ".join(f"{finding.severity.value}: {finding.id}" for finding in ranked(found)) or "fine"


def _left(left: Sequence[Check], why: str) -> str:
    return f"not examined, because {why}: {', '.join(check.name for check in left)}"


def _lines(finding: Finding) -> Iterator[tuple[str, str]]:
    yield "seen", finding.seen
    yield "training", finding.training
    yield "change", finding.change
