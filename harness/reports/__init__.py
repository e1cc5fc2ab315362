"""Reports of runs: HTML pages, JUnit XML, Markdown, JSON and terminal output.

``call_timelines`` and ``build_timeline`` are pure functions of a journal's events; everything else renders them.
"""

from __future__ import annotations

from sfusion.harness.reports.calls import CallTimeline, Span, call_timelines
from sfusion.harness.reports.files import Reports, write_page
from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.run_report import RunReport, headline
from sfusion.harness.reports.run_reporter import RunReporter
from sfusion.harness.reports.summaries import junit, markdown, summary, summary_json
from sfusion.harness.reports.timeline import Mark, Steps, Timeline, build_timeline

__all__ = [
    "CallTimeline",
    "Mark",
    "Reports",
    "RunReport",
    "RunReporter",
    "Span",
    "Steps",
    "Timeline",
    "build_timeline",
    "call_timelines",
    "headline",
    "junit",
    "markdown",
    "render_index",
    "render_run",
    "summary",
    "summary_json",
    "write_page",
]
