"""Reports of runs: pages for people, files for build systems, lines for terminals.

``stories`` and ``build_timeline`` are pure functions over the events of a journal; everything else draws what they say.
"""

from __future__ import annotations

from harness.reports.html import render_index, render_run
from harness.reports.junit import junit
from harness.reports.markdown import markdown
from harness.reports.model import Run, headline
from harness.reports.stories import Span, Story, stories
from harness.reports.summary import summary, summary_json
from harness.reports.terminal import LiveReporter, PlainReporter, reporter
from harness.reports.timeline import Mark, Steps, Timeline, build_timeline
from harness.reports.writing import Reports, run_of

__all__ = [
    "LiveReporter",
    "Mark",
    "PlainReporter",
    "Reports",
    "Run",
    "Span",
    "Steps",
    "Story",
    "Timeline",
    "build_timeline",
    "headline",
    "junit",
    "markdown",
    "render_index",
    "render_run",
    "reporter",
    "run_of",
    "stories",
    "summary",
    "summary_json",
]
