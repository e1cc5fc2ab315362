"""The page and the charts of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from sfusion.harness.reports.html import render_page
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from sfusion.harness.studies.sweep.axes import are_numbers, label
from sfusion.harness.studies.sweep.grid import Measured, SeedSpread
from sfusion.harness.studies.sweep.result import HEAD, SweepResult, shown
from sfusion_tools.wording import counted


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
