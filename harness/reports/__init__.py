"""Reports of runs: HTML pages, JUnit XML, Markdown, JSON and terminal output.

``build_timeline`` is a pure function of a journal's events, and ``spans_of`` of a call; everything else renders them.
"""

from __future__ import annotations

from sfusion.harness.reports.files import Reports, write_page
from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.run_report import RunReport, headline
from sfusion.harness.reports.run_reporter import RunReporter
from sfusion.harness.reports.summaries import junit, markdown, summary, summary_json
from sfusion.harness.reports.timeline import Mark, Steps, Timeline, build_timeline
from sfusion_tools.record import Span, spans_of

__all__ = [
    "Mark",
    "Reports",
    "RunReport",
    "RunReporter",
    "Span",
    "Steps",
    "Timeline",
    "build_timeline",
    "headline",
    "junit",
    "markdown",
    "render_index",
    "render_run",
    "spans_of",
    "summary",
    "summary_json",
    "write_page",
]
