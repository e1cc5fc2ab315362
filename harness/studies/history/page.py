"""The page and the charts of a history."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from sfusion.harness.reports.html import render_page
from sfusion.harness.reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from sfusion.harness.studies.history.record import HistoryRecord
from sfusion.harness.studies.history.reporter import HEAD, history_rows
from sfusion.harness.studies.history.selecting import ScenarioHistory
from sfusion_tools.wording import counted

_STATE_COLOURS = {"held": "held", "broken": "broken", "unknown": "unknown"}


def render_history(found: Sequence[ScenarioHistory], out: str) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    runs = sum(len(one.records) for one in found)
    return render_page(
        "history.html.j2",
        headline=f"{counted(len(found), 'scenario')}, {counted(runs, 'run')}",
        out=out,
        columns=HEAD,
        scenarios=[
            (one, one.records[-1].state, history_rows(one), [Markup(chart.svg()) for chart in charts(one)])
            for one in found
        ],
        chart_style=Markup(chart_style()),
        opened=len(found) <= 3,
    )


def charts(one: ScenarioHistory, *, named: bool = False) -> list[LineChart]:
    """Throughput and durations over the runs; the colour of a point is the state of its run."""
    labels = [record.commit[:8] or f"#{record.run}" for record in one.records]
    prefix = f"{one.name}: " if named else ""
    durations = [ChartLine(name, _points(one.records, name)) for name in ("p50", "p95", "p99")]
    return [
        LineChart(
            f"{prefix}Calls that ended ok per second",
            "run",
            labels,
            [ChartLine("", _points(one.records, "throughput", states=True))],
        ),
        LineChart(f"{prefix}How long a call took, in seconds", "run", labels, durations),
    ]


def _points(records: Sequence[HistoryRecord], name: str, *, states: bool = False) -> list[ChartPoint]:
    return [
        ChartPoint(
            record.number(name),
            note=f"run {record.run}, {record.time} {record.commit}: {record.state}, {record.number(name)}",
            colour=_STATE_COLOURS.get(record.state, "unknown") if states else "",
        )
        for record in records
    ]
