"""Reports of runs: pages for people, files for build systems, lines for terminals.

``stories`` and ``build_timeline`` are pure functions over the events of a journal; everything else draws what they say.
"""

from __future__ import annotations

from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.junit import junit
from sfusion.harness.reports.markdown import markdown
from sfusion.harness.reports.model import Run, headline
from sfusion.harness.reports.stories import Span, Story, stories
from sfusion.harness.reports.summary import summary, summary_json
from sfusion.harness.reports.terminal import RunReporter
from sfusion.harness.reports.timeline import Mark, Steps, Timeline, build_timeline
from sfusion.harness.reports.writing import Reports, run_of

__all__ = [
    "Mark",
    "Reports",
    "Run",
    "RunReporter",
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
    "run_of",
    "stories",
    "summary",
    "summary_json",
]
