"""Reports of runs: HTML pages, JUnit XML, Markdown, JSON and terminal output.

``build_timeline`` is a pure function of a journal's events, and ``spans_of`` of a call; everything
else renders them.
"""

from .files import Reports, write_page
from .html import render_index, render_run
from .run_report import RunReport, RunReporter

__all__ = ["Reports", "RunReport", "RunReporter", "render_index", "render_run", "write_page"]
