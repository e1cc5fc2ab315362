"""The terminal report of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from sfusion.harness.studies.compare.comparison import RunComparison
from sfusion.harness.studies.compare.telling import sections
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted


class CompareReporter(ProgressReporter):
    """Prints each run that changed, and one line about all of them."""

    def __init__(self, out: TextIO, total: int) -> None:
        super().__init__(out, total, "comparing")

    def compared(self, number: int) -> None:
        self.progress(number)

    def finish(self, found: Sequence[RunComparison], gone: Sequence[str], new: Sequence[str]) -> None:
        for one in found:
            if not one.same or len(found) == 1:
                self._print_one(one)
        for names, where in ((gone, "first"), (new, "second")):
            if names:
                self.print(f"only in the {where} folder: {', '.join(names)}", "yellow")
        worse, same = sum(one.worse for one in found), sum(one.same for one in found)
        if len(found) > 1:
            text = f"{counted(len(found), 'run')}: {same} the same, {len(found) - same} changed, {worse} worse"
            self.print(text, "bold red" if worse else "green")

    def _print_one(self, one: RunComparison) -> None:
        name = one.before.name if one.before.name == one.after.name else f"{one.before.name} -> {one.after.name}"
        self.print(f"{name}: {one.sentence}", "bold red" if one.worse else "bold")
        if one.before.journal.header["scenario"] != one.after.journal.header["scenario"]:
            self.print("  these are runs of different scenarios: calls are matched by their ids", "yellow")
        for heading, lines in sections(one):
            self.print(f"  {heading}")
            for line in lines:
                self.print(f"    {line}", "red" if line.startswith("- ") else "green" if line.startswith("+ ") else "")
        self.print()
