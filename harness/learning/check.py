"""Runs a learned scenario in virtual time, learns from that run, and compares."""

from __future__ import annotations

from dataclasses import dataclass

from sfusion.harness.learning.figures import Comparison, compare
from sfusion.harness.learning.learned import Learned, learn
from sfusion.harness.logs.journal_records import journal_records
from sfusion.harness.runs.python import run_scenario


@dataclass(frozen=True, slots=True)
class Checked:
    """How well a learned scenario behaves like its log."""

    rows: tuple[Comparison, ...]
    again: Learned | None
    """What is learned from the run; None if it made no call."""
    same_cause: bool
    held: bool
    """Every promise of the scenario held."""
    broken: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        return self.same_cause and self.held and all(row.agrees for row in self.rows)


def check(learned: Learned, text: str) -> Checked:
    """Play the scenario that was learned; ``text`` is its YAML."""
    (result,) = run_scenario(text, check=False)
    calls = sorted(journal_records(result.journal.events), key=lambda call: call.began)
    broken = tuple(f"{one.promise}: {one.sentence}" for one in result.verdicts if one.state in ("broken", "unknown"))
    if not calls:
        return Checked((), None, False, result.ok, broken)
    again = learn(calls)
    rows = tuple(compare(learned.figures, again.figures))
    return Checked(rows, again, again.headline == learned.headline, result.ok, broken)
