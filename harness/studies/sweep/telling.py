"""A sweep on the terminal, as a page and as charts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TextIO

from markupsafe import Markup

from sfusion.harness.reports.html import render_page
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from sfusion.harness.reports.run_report import duration
from sfusion.harness.studies.sweep.grid import Grid, Measured, SeedSpread, Values, are_numbers, label
from sfusion.harness.studies.sweep.recommendation import NOTICED
from sfusion.harness.studies.sweep.result import HEAD, SweepResult, shown
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_LEFT_OUT = ("p99", "p50", "refused")
"""Columns that a narrow terminal does not show; a number that is cut off would be a wrong one."""


class SweepReporter(ProgressReporter):
    """Shows each setting as it ends; ``finish`` prints the table."""

    def __init__(self, out: TextIO, grid: Grid, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(out, grid.runs, "sweeping")
        self._grid, self._clock, self._began = grid, clock, clock()

    def run_ended(self, done: int) -> None:
        """Move the bar, and say how long the rest takes."""
        left = (self._clock() - self._began) * (self._grid.runs - done) / done
        self.progress(done, f"about {duration(left)} left")

    def setting_ended(self, number: int, values: Values, one: Measured) -> None:
        count = len(self._grid.settings)
        named = ", ".join(f"{axis.path} {label(value)}" for axis, value in zip(self._grid.axes, values, strict=True))
        text = f"{named}: {shown(one.throughput, 'throughput')} calls/s"
        self.progress(number * self._grid.seeds, line=f"[{number:>{len(str(count))}}/{count}] {text}")

    def finish(self, result: SweepResult) -> None:
        """Print the table and what to set."""
        grid = result.grid
        self.print()
        head = [*(axis.name for axis in grid.axes), *HEAD]
        good = [result.is_recommended(values) for values in grid.settings]
        rows = [
            [f"{'->' if best else '  '} {first}", *rest]
            for best, (first, *rest) in zip(good, result.narrow_rows(), strict=True)
        ]
        for name in _LEFT_OUT:
            if _width([head, *rows]) > self._console.width:
                place = head.index(name)
                head, rows = _without(head, place), [_without(row, place) for row in rows]
        self.table(rows, head, ["bold green" if best else "" for best in good], texts=0)
        self.print(f"medians over {counted(grid.seeds, 'seed')}; times in seconds", "dim")
        self.print()
        notes = [
            *(
                f"broken at {self._named(values)}: {', '.join(one.broken)}"
                for values, one in result.settings
                if one.broken
            ),
            *(
                f"{self._named(values)}: {1 - one.ok_share:.0%} of the calls do not end ok, mostly {one.main_failure}"
                for values, one in result.settings
                if one.main_failure and one.ok_share < 1 - NOTICED
            ),
            *(f"{self._named(values)}: {one.errors[0]}" for values, one in result.settings if one.errors),
        ]
        for note in notes[:5]:
            self.print(note, "yellow")
        if len(notes) > 5:
            self.print(
                f"and {counted(len(notes) - 5, 'setting')} more with broken promises, failed calls or errors", "yellow"
            )
        if notes:
            self.print()
        for sentence in result.sentences():
            self.print(sentence)
        is_good = result.overall is not None or grid.compares
        self.print(result.headline, "bold green" if is_good else "bold red")

    def _named(self, values: Values) -> str:
        return ", ".join(f"{axis.name} {label(value)}" for axis, value in zip(self._grid.axes, values, strict=True))


def _width(rows: Sequence[Sequence[str]]) -> int:
    return sum(max(map(len, column)) + 3 for column in zip(*rows, strict=True))


def _without(row: list[str], place: int) -> list[str]:
    return row[:place] + row[place + 1 :]


def render_sweep(result: SweepResult) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    grid = result.grid
    return render_page(
        "sweep.html.j2",
        headline=result.headline,
        scenario=result.scenario,
        about=result.about,
        facts=[
            ("settings", f"{len(grid.settings):,}"),
            ("seeds each", str(grid.seeds)),
            ("runs", f"{grid.runs:,}"),
            *((axis.path, f"{label(axis.values[0])} to {label(axis.values[-1])}") for axis in grid.axes),
        ],
        advice=result.advice(),
        charts=[Markup(chart.svg()) for chart in charts(result)],  # LineChart escapes every text
        chart_style=Markup(chart_style()),
        columns=[axis.path for axis in grid.axes] + list(HEAD),
        texts=len(grid.axes),
        rows=[
            (row, result.is_recommended(values), one.broken, one.errors)
            for row, (values, one) in zip(result.rows(), result.settings, strict=True)
        ],
        seeds=counted(grid.seeds, "seed"),
    )


def charts(result: SweepResult) -> list[LineChart]:
    """Throughput, durations, wasted attempts and the time of the batch, along the chosen axis."""
    several = len(result.curves) > 1

    def of(figure: str, name: str = "") -> list[ChartLine]:
        return [
            ChartLine(name or condition, _points(result, curve, figure)) for condition, curve in result.curves.items()
        ]

    durations = of("p95") if several else [line for name in ("p50", "p95", "p99") for line in of(name, name)]
    lost = of("wasted") if several else [*of("wasted", "wasted"), *of("refused", "of these refused")]
    return [
        _chart(result, "Throughput: calls that ended ok per second", of("throughput")),
        _chart(result, "p95 of a call in seconds" if several else "How long a call took, in seconds", durations),
        _chart(result, "Attempts that gave no result", lost),
        _chart(result, "Time of the whole batch in seconds", of("seconds")),
    ]


def _chart(result: SweepResult, title: str, lines: Sequence[ChartLine]) -> LineChart:
    axis, overall = result.grid.chosen, result.overall
    labels = [label(value) for value in axis.values]
    numbers = [float(value) for value in axis.values] if are_numbers(axis.values) else None
    mark = None if overall is None else labels.index(label(overall[0]))
    return LineChart(title, axis.path, labels, lines, numbers=numbers, mark=mark)


def _points(result: SweepResult, curve: Sequence[Measured], figure: str) -> list[ChartPoint]:
    points = []
    for value, one in zip(result.grid.chosen.values, curve, strict=True):
        spread: SeedSpread = getattr(one, figure)
        note = f"{label(value)}: {shown(spread, figure)}"
        points.append(ChartPoint(None if one.errors else spread.median, spread.low, spread.high, note))
    return points
