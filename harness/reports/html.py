"""Pages for people: one self-contained HTML file for a run, one for all runs of a command."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from sfusion.harness.reports.model import STATES, Run, headline, span_text, writable
from sfusion.harness.reports.payload import embed, payload

_ASSETS = Path(__file__).parent / "assets"
_RUN_SCRIPTS = ("view.js", "chart.js", "lanes.js", "story.js", "run.js")
_EVIDENCE_SHOWN, _EVIDENCE_MOST = 4, 200
"""Rows of evidence shown at once and after a click; verdict.json has all."""


def render_run(run: Run) -> str:
    """The page of one run. It loads nothing, and runs no script but its own."""
    data = payload(run)
    script = _script(_RUN_SCRIPTS)
    return writable(
        _environment()
        .get_template("run.html.j2")
        .render(
            run=run,
            headline=_run_headline(run),
            verdicts=sorted(run.verdicts, key=lambda one: STATES.index(one.state)),
            shown=_EVIDENCE_SHOWN,
            most=_EVIDENCE_MOST,
            facts=_facts(run, data),
            data=Markup(embed(data)),  # embed() leaves nothing that HTML would read
            style=_style("base.css", "run.css"),
            script=script,
            policy=_policy(script),
        )
    )


def render_index(runs: Sequence[Run], links: Mapping[str, str] | None = None) -> str:
    """The page of all runs; ``links`` says where the page of a run is, by the run's name."""
    script = _script(("view.js", "index.js"))
    ordered = sorted(runs, key=lambda run: (STATES.index(run.state), run.name))
    return writable(
        _environment()
        .get_template("index.html.j2")
        .render(
            runs=ordered,
            headline=headline(runs),
            counts={state: sum(1 for run in runs if run.state == state) for state in STATES},
            links=links or {},
            style=_style("base.css", "index.css"),
            script=script,
            policy=_policy(script),
        )
    )


def _run_headline(run: Run) -> str:
    total, broken, unknown = len(run.verdicts), len(run.of("broken")), len(run.of("unknown"))
    if run.error:
        return "This run did not get to its end"
    if not total:
        return "This run promised nothing"
    if not broken and not unknown:
        return {1: "The promise held", 2: "Both promises held"}.get(total, f"All {total} promises held")
    parts = []
    if broken:
        parts.append(f"{broken} of {total} promises {'was' if broken == 1 else 'were'} broken")
    if unknown:
        parts.append(f"{unknown} could not be judged" if broken else f"{unknown} of {total} could not be judged")
    return ", ".join(parts)


def _facts(run: Run, data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The row of numbers under the headline."""
    calls = data["calls"]
    facts = [
        ("calls", f"{len(calls):,}"),
        ("attempts", f"{sum(call[5] for call in calls):,}"),
        ("faults struck", f"{sum(1 for mark in data['marks'] if mark[1] == 'strike'):,}"),
        ("peak in flight", _peak(data)),
        ("longest line", f"{max(data['waiting'][1], default=0):,}"),
        ("simulated time" if run.world == "sim" else "time", span_text(run.seconds)),
    ]
    if run.wall_seconds is not None and run.world == "sim":
        facts.append(("took", span_text(run.wall_seconds)))
    return facts


def _peak(data: Mapping[str, Any]) -> str:
    peak, limit = max(data["inFlight"][1], default=0), max(data["limit"][1], default=0)
    return f"{peak:,} of {limit:,}" if limit else f"{peak:,}"


def _evidence_text(row: Mapping[str, Any]) -> str:
    """One row of evidence as words; call and time are shown apart."""
    shown = {key: value for key, value in row.items() if key not in ("at", "call", "path") and value is not None}
    who, what = shown.pop("source", ""), str(shown.pop("event", "")).replace("_", " ")
    event = [f"{who}: {what}" if who and what else f"{who}{what}"] if who or what else []
    return ", ".join(event + [f"{key.replace('_', ' ')} {value}" for key, value in shown.items()])


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["span"] = span_text
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
    """Only this script may run: even a tag that came through would stay text to the browser."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
