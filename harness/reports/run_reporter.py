"""The terminal report of ``sfusion run``: progress, a table, and what did not hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Sequence
from typing import TextIO

from rich.text import Text

from sfusion.harness.reports.run_report import (
    BROKEN,
    HELD,
    NOT_APPLICABLE,
    UNKNOWN,
    RunReport,
    duration,
    headline,
)
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_STYLES = {HELD: "green", BROKEN: "bold red", UNKNOWN: "yellow"}
_SAID_ONCE = (UNKNOWN, NOT_APPLICABLE)
_MANY_EVENTS = 10_000
"""Below this, starting takes longer than running, and a rate says nothing."""
_HEAD = ("", "scenario", "promises", "calls", "time", "took")


class RunReporter(ProgressReporter):
    """Shows each run that did not hold (with ``verbose``, each run) as it ends; ``finish`` prints the table."""

    def __init__(
        self, out: TextIO, total: int, clock: Callable[[], float] = time.monotonic, *, verbose: bool = False
    ) -> None:
        super().__init__(out, total, "running scenarios")
        self._clock, self._began, self._verbose = clock, clock(), verbose
        self._counts = dict.fromkeys(_STYLES, 0)

    def run_ended(self, run: RunReport) -> None:
        self._counts[run.state] += 1
        done, width = sum(self._counts.values()), len(str(self._total))
        counts = [Text(f"{count} {state}", _STYLES[state]) for state, count in self._counts.items() if count]
        listed = self._verbose or run.state != HELD
        line = f"[{done:>{width}}/{self._total}] {run.state:<7} {run.name}" if listed else ""
        self.progress(done, Text("  ").join(counts), line=line)

    def finish(self, runs: Sequence[RunReport], note: str = "") -> None:
        """Print the table, then each promise that did not hold, and the headline with ``note`` behind it."""
        if listed := [run for run in runs if self._verbose or run.state != HELD]:
            self.print()
            self.table([_row(run) for run in listed], _HEAD, [_STYLES[run.state] for run in listed])
            self.print()
        repeated = _repeated(runs)
        for run in runs:
            if run.state != HELD or run.unplanned:
                self._print_problems(run, repeated)
        for sentence, (state, promises, count) in repeated.items():
            self.print(f"{state.replace('_', ' ')} in {counted(count, 'run')}: {', '.join(promises)}: {sentence}")
        if repeated:
            self.print()
        events, took = sum(len(run.events) for run in runs), self._clock() - self._began
        if events >= _MANY_EVENTS:
            self.print(f"{events:,} events in {duration(took)}, {events / took:,.0f} events per second", "dim")
        worst = next((state for state in (BROKEN, UNKNOWN) if any(run.state == state for run in runs)), HELD)
        self.print(headline(runs) + note, _STYLES[worst])

    def _print_problems(self, run: RunReport, repeated: Container[str]) -> None:
        shown = [*run.in_state(BROKEN), *(one for one in run.in_state(UNKNOWN) if one.sentence not in repeated)]
        if not shown and not run.error and not run.unplanned:
            return
        self.print(run.name, "bold")
        for sentence in run.unplanned:
            self.print(f"  {sentence}; what follows may come from that", _STYLES[BROKEN])
        if run.error:
            self.print(f"  broken: {run.error}", _STYLES[BROKEN])
        for one in shown:
            self.print(f"  {one.state}: {one.promise}: {one.sentence}", _STYLES[one.state])
        if run.replay:
            self.print(f"  {run.replay}", "dim")
        self.print()


def _repeated(runs: Sequence[RunReport]) -> dict[str, tuple[str, list[str], int]]:
    """What cannot be judged for one reason in several places: the reason, with state, promises and number of runs."""
    found: dict[str, tuple[str, list[str], int]] = {}
    for sentence in dict.fromkeys(one.sentence for run in runs for one in run.verdicts if one.state in _SAID_ONCE):
        places = [(run, one) for run in runs for one in run.verdicts if one.sentence == sentence]
        if len(places) > 1 or places[0][1].state == NOT_APPLICABLE:
            promises = list(dict.fromkeys(one.promise for _, one in places))
            found[sentence] = places[0][1].state, promises, len({id(run) for run, _ in places})
    return found


def _row(run: RunReport) -> tuple[str, ...]:
    took = "" if run.wall_seconds is None else duration(run.wall_seconds)
    return run.state, run.name, run.score, f"{run.calls:,}", duration(run.seconds), took
