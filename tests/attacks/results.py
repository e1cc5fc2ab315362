"""Prints how every attack ended in every mode, after the tests: a gap stands only where
docs/security.md names it."""

from __future__ import annotations

import re

import pytest

WORDS = {"passed": "held", "failed": "BROKEN", "error": "BROKEN", "xfailed": "gap", "skipped": "-"}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    found = {
        (match["program"], match["mode"]): word
        for outcome, word in WORDS.items()
        for report in terminalreporter.stats.get(outcome, [])
        if (
            match := re.search(
                r"::test_promise_holds\[(?P<program>\w+)-(?P<mode>[\w-]+)\]", report.nodeid
            )
        )
    }
    if found:
        from tests.attacks.test_attacks import MODES, PROGRAMS, PROMISED

        promised = {(program.stem, mode) for program, mode in (case.values for case in PROMISED)}
        rows = [["attack", *MODES]]
        for program in PROGRAMS:
            cases = [(program.stem, mode) for mode in MODES]
            rows.append(
                [
                    program.stem,
                    *(found.get(case, "-" if case in promised else "gap") for case in cases),
                ]
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        terminalreporter.section(
            "attacks: held, gap (docs/security.md names it), - (not tried here)"
        )
        for row in rows:
            line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            terminalreporter.write_line(line.rstrip())
