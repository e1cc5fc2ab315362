"""Shows how far a run is: a bar at a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from sfusion.harness.rollouts.tally import Tally


class Reporter(Protocol):
    """Somebody who wants to know how far a run is."""

    def update(self, step: int, tally: Tally, seconds: float) -> None:
        """A request of this step has ended, so many seconds after the run began."""
        ...


class Silent:
    """Shows nothing."""

    def update(self, step: int, tally: Tally, seconds: float) -> None:
        """Nothing."""


class PlainReporter:
    """A line for every tenth of the run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._tenth = 0

    def update(self, step: int, tally: Tally, seconds: float) -> None:
        """Print a line when the next tenth is done."""
        tenth = tally.ended * 10 // max(tally.total, 1)
        if tenth > self._tenth:
            self._tenth = tenth
            self._console.print(
                f"step {step}: {tally.ended}/{tally.total} requests, {_rate(tally, seconds)}: {tally.outcome_text()}",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )

    def __enter__(self) -> PlainReporter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left open."""


class BarReporter:
    """A progress bar with rates and outcome counts."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("[bold]step {task.fields[step]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[outcomes]}", markup=False),
            console=console,
        )
        self._task: TaskID | None = None

    def update(self, step: int, tally: Tally, seconds: float) -> None:
        """Move the bar."""
        rate, outcomes = _rate(tally, seconds), tally.outcome_text()
        if self._task is None:
            self._task = self._progress.add_task("rollouts", total=tally.total, step=step, rate=rate, outcomes=outcomes)
        self._progress.update(self._task, completed=tally.ended, step=step, rate=rate, outcomes=outcomes)

    def __enter__(self) -> BarReporter:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def reporter(console: Console) -> PlainReporter | BarReporter:
    """The reporter that fits where the output goes."""
    return BarReporter(console) if console.is_terminal else PlainReporter(console)


def _rate(tally: Tally, seconds: float) -> str:
    if seconds <= 0:
        return "–/s"
    return f"{tally.ended / seconds:.1f} requests/s, {tally.calls / seconds:.1f} calls/s"
