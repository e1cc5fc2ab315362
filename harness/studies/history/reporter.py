"""The terminal report of ``sfusion history``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from sfusion.harness.studies.history.record import HistoryRecord
from sfusion.harness.studies.history.selecting import ScenarioHistory
from sfusion.harness.terminal import ProgressReporter

_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
HEAD = ("run", "time", "commit", "state", "changed", "calls/s", "p95", "wasted")


class HistoryReporter(ProgressReporter):
    def __init__(self, out: TextIO, total: int) -> None:
        super().__init__(out, total, "history")

    def finish(self, found: Sequence[ScenarioHistory], *, detailed: bool) -> None:
        """Print a table of every run of each scenario, or one line for each."""
        if not detailed:
            rows = [_summary(one) for one in found]
            head = ("state", "scenario", "last change", "runs", "calls/s", "p95")
            self.table(rows, head, [_STYLES.get(one.records[-1].state, "") for one in found], texts=3)
            return
        for one in found:
            self.print(one.name, "bold")
            self.table(history_rows(one), HEAD, texts=5)
            self.print()


def history_rows(one: ScenarioHistory) -> list[list[str]]:
    """A row of texts for each run, the latest first."""
    rows = [
        [
            str(record.run),
            record.time[:16].replace("T", " "),
            record.commit or "-",
            record.state,
            changed,
            figure(record, "throughput"),
            figure(record, "p95", " s"),
            figure(record, "wasted"),
        ]
        for record, changed in zip(one.records, one.changes, strict=True)
    ]
    return rows[::-1]


def figure(record: HistoryRecord, name: str, unit: str = "") -> str:
    value = record.number(name)
    if value is None:
        return "-"
    return f"{value:.0f}{unit}" if value >= 100 or value == int(value) else f"{value:.3g}{unit}"


def _summary(one: ScenarioHistory) -> list[str]:
    last = one.records[-1]
    changed = [
        f"run {record.run}{f' at {record.commit}' if record.commit else ''}: {text}"
        for record, text in zip(one.records, one.changes, strict=True)
        if text not in ("", "first")
    ]
    return [
        last.state,
        one.name,
        changed[-1] if changed else "never",
        str(len(one.records)),
        figure(last, "throughput"),
        figure(last, "p95", " s"),
    ]
