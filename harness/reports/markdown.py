"""A Markdown summary for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from sfusion.harness.lab.promises.verdict import Verdict
from sfusion.harness.reports.run_report import BROKEN, HELD, UNKNOWN, RunReport, duration, encodable, headline

_SIGNS = {HELD: "✅", BROKEN: "❌", UNKNOWN: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~@!])")
SENTENCE_LENGTH = 300


def markdown(runs: Sequence[RunReport]) -> str:
    """Broken promises first, then a table of all runs, collapsed if it is long."""
    lines = [f"### {_SIGNS[_worst(runs)]} sfusion: {headline(runs)}", ""]
    for run in runs:
        if run.state == HELD:
            continue
        lines.append(f"**{_escape(run.name)}** (world {run.world}, seed {run.seed})")
        lines.append("")
        if run.error:
            lines.append(f"- {_SIGNS[BROKEN]} {_escape(_short(run.error))}")
        lines += [_bullet(one) for one in [*run.in_state(BROKEN), *run.in_state(UNKNOWN)]]
        if run.replay:
            lines.append(f"- replay: `{run.replay.replace('`', '')}`")
        lines.append("")
    long = len(runs) > 12
    if long:
        lines += ["<details><summary>All runs</summary>", ""]
    lines += ["| | scenario | promises held | calls | time | world |", "|---|---|---:|---:|---:|---|"]
    for run in runs:
        cells = [_SIGNS[run.state], _escape(run.name), run.score, str(run.calls), duration(run.seconds), run.world]
        lines.append(f"| {' | '.join(cells)} |")
    if long:
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _worst(runs: Sequence[RunReport]) -> str:
    states = {run.state for run in runs}
    return next((state for state in (BROKEN, UNKNOWN) if state in states), HELD if runs else UNKNOWN)


def _bullet(one: Verdict) -> str:
    return f"- {_SIGNS[one.state]} `{one.promise.replace('`', '')}` {one.state}: {_escape(_short(one.sentence))}"


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_LENGTH else text[: SENTENCE_LENGTH - 1] + "…"


def _escape(text: str) -> str:
    """Escape everything that Markdown interprets: links, mentions, HTML, line breaks."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(encodable(text).split()), quote=False))
