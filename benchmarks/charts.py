"""Plots of growth as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from benchmarks.figures import GrowthCurve
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart


def growth_charts(curves: Sequence[GrowthCurve]) -> dict[str, LineChart]:
    """One chart for each curve and unit, by the name of its file."""
    charts: dict[str, LineChart] = {}
    for (name, _), group in groupby(curves, key=lambda curve: (curve.curve, curve.unit)):
        lines = list(group)
        sizes = sorted(
            {point.size for line in lines for point in line.points if point.cost is not None}
        )
        if not sizes:
            continue
        file = name if name not in charts else f"{name}-{lines[0].line.replace(' ', '-')}"
        charts[file] = LineChart(
            _title(lines),
            lines[0].size_name,
            [f"{size:,}" for size in sizes],
            [ChartLine(_named(line), [_point(line, size) for size in sizes]) for line in lines],
            numbers=[float(size) for size in sizes],
        )
    return charts


def _title(lines: Sequence[GrowthCurve]) -> str:
    """Names the exponent of a single line, which has no legend."""
    first = lines[0]
    if len(lines) > 1:
        return f"{first.curve}: {first.unit}"
    return ", ".join(filter(None, (f"{first.name}: {first.unit}", _exponent(first))))


def _named(line: GrowthCurve) -> str:
    return ", ".join(filter(None, (line.line, _exponent(line))))


def _exponent(line: GrowthCurve) -> str:
    return "" if line.exponent is None or not line.per_unit else f"exponent {line.exponent:.2f}"


def _point(line: GrowthCurve, size: int) -> ChartPoint:
    for point in line.points:
        if point.size == size and point.cost is not None:
            cost = point.cost
            note = (
                f"{size:,}: {cost.median:.3g} ({cost.low:.3g} to {cost.high:.3g}), "
                f"{point.repetitions} times"
            )
            return ChartPoint(cost.median, cost.low, cost.high, note)
    return ChartPoint(None)
