"""``sfusion history``: show how verdicts and figures of scenarios changed over runs and commits.

`sfusion run --out DIR` keeps a record of each run, and its files if its journal differs from the
next one's: the last 20 of each scenario, or as many as `--history N` says.

Exit code 0, or 2 if there is no such history.

Example: sfusion history throttled-gateway --out runs --html history.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from markupsafe import Markup
from typer import Argument

from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import Html, Json
from ...reports import Reports
from ...reports.html import render_page
from ...reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from ...terminal import ProgressReporter
from .store import HistoryRecord, ScenarioHistory, read_histories

_STYLES = {"held": "green", "broken": "bold red", "unknown": "yellow"}
HEAD = ("run", "time", "commit", "state", "changed", "calls/s", "p95", "wasted")


class HistoryReporter(ProgressReporter):
    def finish(self, found: Sequence[ScenarioHistory], *, detailed: bool) -> None:
        """Print a table of every run of each scenario, or one line for each."""
        if not detailed:
            rows = [_summary(one) for one in found]
            head = ("state", "scenario", "last change", "runs", "calls/s", "p95")
            self.table(
                rows, head, [_STYLES.get(one.records[-1].state, "") for one in found], texts=3
            )
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


def render_history(found: Sequence[ScenarioHistory], out: str) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    runs = sum(len(one.records) for one in found)
    return render_page(
        "history.html.j2",
        headline=f"{counted(len(found), 'scenario')}, {counted(runs, 'run')}",
        out=out,
        columns=HEAD,
        scenarios=[
            (
                one.name,
                one.records[-1].state,
                counted(len(one.records), "run"),
                history_rows(one),
                # One point shows no course, and nothing says which of the durations it is.
                [Markup(chart.svg()) for chart in charts(one)] if len(one.records) > 1 else [],
            )
            for one in found
        ],
        chart_style=Markup(chart_style()),
        opened=len(found) <= 3,
    )


def charts(one: ScenarioHistory) -> list[LineChart]:
    """Throughput and durations over the runs; the colour of a point is the state of its run."""
    labels = [record.commit[:8] or f"#{record.run}" for record in one.records]
    durations = [ChartLine(name, _points(one.records, name)) for name in ("p50", "p95", "p99")]
    return [
        LineChart(
            "Calls that ended ok per second",
            "run",
            labels,
            [ChartLine("", _points(one.records, "throughput"))],
        ),
        LineChart("How long a call took, in seconds", "run", labels, durations),
    ]


def _points(records: Sequence[HistoryRecord], name: str) -> list[ChartPoint]:
    return [
        ChartPoint(
            record.number(name),
            note=(
                f"run {record.run}, {record.time} {record.commit}: {record.state}, "
                f"{record.number(name)}"
            ),
            colour=record.state if record.state in _STYLES else "unknown",
        )
        for record in records
    ]


@command
def history(
    scenarios: Annotated[
        list[str] | None,
        Argument(
            metavar="SCENARIO",
            help="Names of scenarios, or of single cells; by default all of the folder.",
        ),
    ] = None,
    out: Annotated[Path, option("The folder that was given to `sfusion run --out`.", "DIR")] = Path(
        "runs"
    ),
    html: Html = None,
    json_file: Json = None,
) -> None:
    found = read_histories(out, scenarios or [])
    Reports(html=html, json=json_file).check()
    with HistoryReporter(text_stream(json_file), len(found), "history") as shown:
        shown.finish(found, detailed=bool(scenarios) or len(found) == 1)
    if html is not None:
        write_file(html, render_history(found, str(out)))
    write_json(json_file, {"history": 1, "scenarios": {one.name: one.as_list() for one in found}})
