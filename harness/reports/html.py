"""Self-contained HTML pages: one for each run, and an index of all runs of a command."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from .line_chart import LineChart, chart_style
from .run_report import STATES, RunReport, duration, encodable, headline
from .timeline import embed, page_data

if TYPE_CHECKING:
    from jinja2 import Environment

_ASSETS = Path(__file__).parent / "assets"
_RUN_SCRIPTS = ("view.js", "chart.js", "lanes.js", "call.js", "run.js")
_EVIDENCE_SHOWN = 4
_EVIDENCE_MAX = 200
"""Rows of evidence shown at first, and after a click; verdict.json has all of them (chosen)."""


def render_run(run: RunReport) -> str:
    """The page of one run. It loads nothing, and no script runs on it but its own."""
    data = page_data(run)
    return render_board(
        "run.html.j2",
        data,
        run=run,
        headline=_run_headline(run),
        verdicts=sorted(run.verdicts, key=lambda verdict: STATES.index(verdict.state)),
        shown=_EVIDENCE_SHOWN,
        most=_EVIDENCE_MAX,
        facts=_facts(run, data),
    )


def render_index(runs: Sequence[RunReport], links: Mapping[str, str] | None = None) -> str:
    """The index of all runs; ``links`` maps the name of a run to the address of its page."""
    ordered = sorted(runs, key=lambda run: (STATES.index(run.state), run.name))
    counts = Counter(run.state for run in ordered)
    values = {"runs": ordered, "headline": headline(runs), "counts": counts, "links": links or {}}
    return _render("index.html.j2", ("view.js", "index.js"), (), values)


def render_page(template: str, styles: Sequence[str] = (), **values: Any) -> str:
    """Another page in the same look, from a template, further style sheets and one of the
    template's name."""
    return _render(template, ("view.js",), styles, values)


def render_board(template: str, data: Mapping[str, Any], **values: Any) -> str:
    """A page with the timeline of a run, drawn from data of this form."""
    board = {"data": Markup(embed(data))}  # embed() escapes everything that HTML would interpret
    return _render(template, _RUN_SCRIPTS, ("run.css",), values | board)


def _render(
    template: str, scripts: Sequence[str], styles: Sequence[str], values: Mapping[str, Any]
) -> str:
    script = _script(scripts)
    page = _environment().get_template(template)
    style = _style(*dict.fromkeys(("base.css", *styles, f"{template.partition('.')[0]}.css")))
    return encodable(page.render(style=style, script=script, policy=_policy(script), **values))


def _run_headline(run: RunReport) -> str:
    broken = len(run.in_state("broken"))
    unknown = len(run.in_state("unknown"))
    total = len(run.verdicts) - len(run.in_state("not_applicable"))
    if run.error:
        return "This run failed"
    if not total:
        return "No promises were checked"
    if not broken and not unknown:
        return {1: "The promise held", 2: "Both promises held"}.get(
            total, f"All {total} promises held"
        )
    if not broken:
        return f"{unknown} of {total} promises could not be judged"
    verb = "was" if broken == 1 else "were"
    failed = f"{broken} of {total} promises {verb} broken"
    return f"{failed}, {unknown} could not be judged" if unknown else failed


def _facts(run: RunReport, data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The row of numbers under the headline."""
    calls = data["calls"]
    peak = max(data["inFlight"][1], default=0)
    limit = max(data["limit"][1], default=0)
    facts = [
        ("calls", f"{len(calls):,}"),
        ("attempts", f"{sum(call[5] for call in calls):,}"),
        ("faults", f"{sum(1 for mark in data['marks'] if mark[1] == 'strike'):,}"),
        ("peak in flight", f"{peak:,} (limit {limit:,})" if limit else f"{peak:,}"),
        ("longest queue", f"{max(data['waiting'][1], default=0):,}"),
        ("simulated time" if run.world == "sim" else "time", duration(run.seconds)),
    ]
    if run.wall_seconds is not None and run.world == "sim":
        facts.append(("real time", duration(run.wall_seconds)))
    return facts


def _evidence_text(row: Mapping[str, Any]) -> str:
    """A row of evidence as text, without the call and the time, which have columns of their own."""
    shown = {
        key: value
        for key, value in row.items()
        if key not in ("at", "call", "path") and value is not None
    }
    source = shown.pop("source", "")
    name = str(shown.pop("event", "")).replace("_", " ")
    event = [": ".join(filter(None, (source, name)))] if source or name else []
    return ", ".join(event + [f"{key.replace('_', ' ')} {value}" for key, value in shown.items()])


@cache
def _environment() -> Environment:
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
    )  # only for pages, and it takes a while

    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["evidence"] = _evidence_text
    return environment


@cache
def _style(*names: str) -> Markup:
    return Markup("\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in names))


@cache
def _script(names: Sequence[str]) -> Markup:
    parts = "\n".join((_ASSETS / name).read_text(encoding="utf-8") for name in names)
    return Markup(f'"use strict";\n(() => {{\n{parts}}})();\n')


def _policy(script: str) -> str:
    """A policy under which only this script runs, even if foreign markup got into the page."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src "
        f"'sha256-{digest}'"
    )


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
    """What the page of ``poison``, ``train`` or a sweep over trainings says; everything in it is
    escaped."""

    what: str
    headline: str
    about: str
    facts: Sequence[tuple[str, str]]
    sentences: Sequence[str]
    legend: str
    charts: Sequence[LineChart]
    tables: Sequence[PageTable]
    notes: Sequence[str] = ()
    """What a reader may want to know afterwards, at the end of the page."""

    def render(self) -> str:
        """Return the page. It loads nothing, and no script runs on it but its own."""
        drawn = [Markup(chart.svg()) for chart in self.charts]  # LineChart escapes every text
        values = {**vars(self), "charts": drawn, "chart_style": Markup(chart_style())}
        return render_page("learning.html.j2", ("sweep.css",), **values)
