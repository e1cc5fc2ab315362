"""What a terminal shows: progress while scenarios run, a table at the end; plain lines where nobody watches."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from sfusion.harness.reports.model import BROKEN, HELD, UNKNOWN, Run, headline, span_text, writable

_STYLES = {HELD: "green", BROKEN: "bold red", UNKNOWN: "yellow"}
_HEAD = ("", "scenario", "promises", "calls", "time", "took")


class PlainReporter:
    """A line for each run as it ends, and an aligned table at the end: what a build log can hold."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._out, self._total, self._ended = out, total, 0

    def __enter__(self) -> PlainReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""

    def ended(self, run: Run) -> None:
        """One run has ended."""
        self._ended += 1
        width = len(str(self._total))
        self._say(f"[{self._ended:>{width}}/{self._total}] {run.state:<7} {run.name}")

    def finish(self, runs: Sequence[Run], note: str = "") -> None:
        """Print the table, what did not hold, and the last line."""
        rows = [_HEAD, *(_row(run) for run in runs)]
        widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
        self._say("")
        for row in rows:
            cells = [
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            self._say("  ".join(cells).rstrip())
        self._say("")
        for line, _ in _complaints(runs):
            self._say(line)
        self._say(headline(runs) + note)

    def _say(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        self._out.write(writable(text).encode(encoding, "replace").decode(encoding) + "\n")
        self._out.flush()


class LiveReporter:
    """A bar while scenarios run, and a coloured table at the end."""

    def __init__(self, out: TextIO, total: int) -> None:
        self._console = Console(file=out, force_terminal=True, highlight=False)
        self._bar = Progress(
            TextColumn("running scenarios"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[counts]}"),
            console=self._console,
            transient=True,
        )
        self._counts = dict.fromkeys(_STYLES, 0)
        self._task = self._bar.add_task("runs", total=total, counts="")

    def __enter__(self) -> LiveReporter:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def ended(self, run: Run) -> None:
        """One run has ended."""
        self._counts[run.state] += 1
        told = "  ".join(f"[{_STYLES[state]}]{count} {state}[/]" for state, count in self._counts.items() if count)
        self._bar.update(self._task, advance=1, counts=told)

    def finish(self, runs: Sequence[Run], note: str = "") -> None:
        """Print the table, what did not hold, and the last line."""
        self._bar.stop()
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="dim")
        for column, name in enumerate(_HEAD):
            table.add_column(name, justify="left" if column < 2 else "right", overflow="fold", no_wrap=column != 1)
        for run in runs:
            state, *rest = _row(run)
            table.add_row(Text(state, _STYLES[run.state]), *map(Text, rest))
        self._console.print(table)
        for line, style in _complaints(runs):
            self._console.print(Text(line, style), soft_wrap=True)
        worst = next((state for state in (BROKEN, UNKNOWN) if any(run.state == state for run in runs)), HELD)
        self._console.print(Text(headline(runs) + note, _STYLES[worst]))


def reporter(out: TextIO, total: int) -> PlainReporter | LiveReporter:
    """The one that fits: colour and movement only for a terminal, whatever the environment says of colours."""
    return LiveReporter(out, total) if out.isatty() else PlainReporter(out, total)


def _row(run: Run) -> tuple[str, ...]:
    held = f"{len(run.of(HELD))}/{len(run.verdicts)}"
    took = "" if run.wall_seconds is None else span_text(run.wall_seconds)
    return run.state, _one_line(run.name), held, f"{run.calls:,}", span_text(run.seconds), took


def _complaints(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Lines about what did not hold, with their style."""
    lines: list[tuple[str, str]] = []
    for run in runs:
        if run.state == HELD:
            continue
        lines.append((_one_line(run.name), "bold"))
        if run.error:
            lines.append((f"  broken: {_one_line(run.error)}", _STYLES[BROKEN]))
        for one in [*run.of(BROKEN), *run.of(UNKNOWN)]:
            lines.append((f"  {one.state}: {one.promise}: {_one_line(one.sentence)}", _STYLES[one.state]))
        if run.replay:
            lines.append((f"  {_one_line(run.replay)}", "dim"))
        lines.append(("", ""))
    return lines


def _one_line(text: str) -> str:
    """Text that cannot command a terminal or break a table: control characters are shown as what they are."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
