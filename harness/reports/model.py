"""A run as reports see it: who it was, what its promises came to, and its journal."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sfusion.harness.promises.verdict import Verdict
from sfusion.harness.reports.stories import Event

HELD, BROKEN, UNKNOWN = "held", "broken", "unknown"
STATES = (BROKEN, UNKNOWN, HELD)
"""The three answers of a verdict, in the order in which a reader wants them."""


@dataclass(frozen=True)
class Run:
    """One scenario, or one cell of its matrix, that was run and judged."""

    scenario: str
    verdicts: Sequence[Verdict]
    cell: str = ""
    about: str = ""
    world: str = "sim"
    sandboxes: Sequence[str] = ()
    """The real sandboxes it ran against; none for the fake."""
    seed: int = 0
    sfusion: str = ""
    events: Sequence[Event] = ()
    source: str = ""
    """The scenario file's text."""
    wall_seconds: float | None = None
    directory: str = ""
    """Where its files are, as the command line was given it; empty when nothing was written."""
    error: str = ""
    """Why it could not be run at all."""

    @property
    def name(self) -> str:
        """The scenario and its cell, as people call it."""
        return f"{self.scenario}[{self.cell}]" if self.cell else self.scenario

    @property
    def state(self) -> str:
        """Broken if any promise is, else unknown if any is, else held."""
        if self.error:
            return BROKEN
        return next((state for state in STATES if any(one.state == state for one in self.verdicts)), UNKNOWN)

    @property
    def replay(self) -> str:
        """The command that runs it again; empty when nothing was written."""
        if not self.directory:
            return ""
        if self.sandboxes:
            targets = " ".join(f"--sandbox {shlex.quote(one)}" for one in self.sandboxes)
            return f"sfusion run {shlex.quote(self.directory + '/scenario.yaml')} {targets}"
        return f"sfusion replay {shlex.quote(self.directory)}"

    def of(self, state: str) -> list[Verdict]:
        """The promises that came to this."""
        return [one for one in self.verdicts if one.state == state]

    @property
    def calls(self) -> int:
        """How many calls it made."""
        told = Counter(event["event"] for event in self.events)
        return told["called"] or told["call_started"]

    @property
    def seconds(self) -> float:
        """How long it took on its own clock."""
        times = [float(event["at"]) for event in self.events]
        return max(times) - min(times) if times else 0.0


def headline(runs: Sequence[Run]) -> str:
    """One sentence about all runs."""
    counts = {state: sum(1 for run in runs if run.state == state) for state in STATES}
    total = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    if not runs:
        return "Nothing was run."
    if counts[HELD] == len(runs):
        return f"{total}: every promise held."
    parts = []
    if counts[BROKEN]:
        parts.append(f"{counts[BROKEN]} broke a promise")
    if counts[UNKNOWN]:
        parts.append(f"{counts[UNKNOWN]} could not be judged in full")
    if counts[HELD]:
        parts.append(f"{counts[HELD]} held")
    return f"{total}: {', '.join(parts)}."


def span_text(seconds: float) -> str:
    """Seconds as people write them."""
    if seconds >= 120:
        return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.3g} s"


def writable(text: str) -> str:
    """The text with every half of a character replaced, so that any file can hold it."""
    return text.encode("utf-8", "replace").decode()
