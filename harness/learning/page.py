"""The page of ``poison`` and ``train``: a headline, facts, sentences, plots and tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from sfusion.harness.reports.html import render_page
from sfusion.harness.reports.line_chart import LineChart, chart_style


@dataclass(frozen=True)
class PageTable:
    """A table, of which the first ``texts`` columns are text."""

    title: str
    about: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1


@dataclass(frozen=True)
class LearningPage:
    """What the page says; everything in it is escaped."""

    what: str
    headline: str
    about: str
    facts: Sequence[tuple[str, str]]
    sentences: Sequence[str]
    legend: str
    charts: Sequence[LineChart]
    tables: Sequence[PageTable]

    def render(self) -> str:
        """Return the page. It loads nothing, and no script runs on it but its own."""
        drawn = [Markup(chart.svg()) for chart in self.charts]  # LineChart escapes every text
        values = {**vars(self), "charts": drawn, "chart_style": Markup(chart_style())}
        return render_page("learning.html.j2", ("sweep.css",), **values)
