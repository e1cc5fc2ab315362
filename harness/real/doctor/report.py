"""Reports on examinations: for a terminal, a build log, or a program."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from sfusion.harness.real.doctor.examination import Check, Examination, Observer
from sfusion.harness.real.doctor.finding import Finding, Severity
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools._version import __version__
from sfusion_tools.wording import counted

_STYLES = {Severity.BREAKS: "bold red", Severity.HURTS: "yellow", Severity.NOTE: "cyan"}
FINE, BROKEN, UNREACHED = 0, 1, 3


def exit_code(examinations: Sequence[Examination]) -> int:
    """0 if nothing breaks training, 1 if something does, 3 if no sandbox could be reached at all."""
    if examinations and all(one.reached is False for one in examinations):
        return UNREACHED
    return BROKEN if any(one.breaks for one in examinations) else FINE


def examinations_as_json(examinations: Sequence[Examination]) -> str:
    document = {
        "sfusion": __version__,
        "exit_code": exit_code(examinations),
        "sandboxes": [
            {
                "url": one.settings.label,
                "from": one.settings.source or None,
                "reached": one.reached,
                "findings": [asdict(finding) for finding in ranked(one.findings)],
                "examined": one.examined,
                "not_examined": [{"check": check, "why": why} for check, why in one.not_examined],
                "measured": one.measured,
            }
            for one in examinations
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Sort by severity, the worst first."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def doctor_headline(examinations: Sequence[Examination]) -> str:
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
        parts.append(counted(notes, "note"))
    left = sum(len(one.not_examined) for one in examinations)
    return ", ".join(parts) + (f"; {counted(left, 'check')} not made" if left else "")


class DoctorReporter(ProgressReporter, Observer):
    """Prints a line for each check while it works, and the findings at the end."""

    def __init__(self, out: TextIO, total: int) -> None:
        super().__init__(out, total, "examining")

    def sandbox_started(self, examination: str) -> None:
        """Name the sandbox that the next checks are about."""
        self.print(f"examining {examination}", "bold")

    def check_started(self, check: Check, number: int) -> None:
        self.progress(number - 1, check.name)

    def announce(self, text: str) -> None:
        self.print(f"        {text}", "dim")

    def check_ended(self, check: Check, number: int, found: Sequence[Finding], why_not: str) -> None:
        worst = ranked(found)[0].severity if found else None
        style = _STYLES[worst] if worst is not None else ("dim" if why_not else "green")
        self.print(f"[{number:>2}/{self._total}] {check.name:<16} {_result(found, why_not)}", style)

    def stopped(self, left: Sequence[Check], why: str) -> None:
        if left:
            self.print(f"        not examined, because {why}: {', '.join(check.name for check in left)}", "dim")

    def finish(self, examinations: Sequence[Examination]) -> None:
        """Print the findings, the worst first, and the headline."""
        for one in examinations:
            self.print()
            if len(examinations) > 1:
                source = f" ({one.settings.source})" if one.settings.source else ""
                self.print(f"{one.settings.label}{source}:", "bold")
            for finding in ranked(one.findings):
                self.print(f"{finding.severity.value}: {finding.id}", _STYLES[finding.severity])
                texts = (("seen", finding.seen), ("training", finding.training), ("change", finding.change))
                self.table([(f"  {label}", text) for label, text in texts], styles=["dim"] * len(texts))
        self.print()
        self.print(doctor_headline(examinations), "bold red" if any(one.breaks for one in examinations) else "green")


def _result(found: Sequence[Finding], why_not: str) -> str:
    if why_not:
        return f"not examined: {why_not}"
    return ", ".join(f"{finding.severity.value}: {finding.id}" for finding in ranked(found)) or "fine"
