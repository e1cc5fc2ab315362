"""Reports of runs: HTML pages, JUnit XML, Markdown, JSON and terminal output.

``build_timeline`` is a pure function of a journal's events, and ``spans_of`` of a call; everything else renders them.
"""

from sfusion.harness.reports.files import Reports, write_page
from sfusion.harness.reports.html import render_index, render_run
from sfusion.harness.reports.run_report import RunReport, RunReporter

__all__ = ["Reports", "RunReport", "RunReporter", "render_index", "render_run", "write_page"]
