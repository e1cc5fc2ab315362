"""A Markdown summary, short enough for a comment on a pull request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from sfusion.harness.promises.verdict import Verdict
from sfusion.harness.reports.model import BROKEN, HELD, UNKNOWN, Run, headline, span_text, writable

_SIGNS = {HELD: "✅", BROKEN: "❌", UNKNOWN: "❔"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]#|~@!])")
SENTENCE_LENGTH = 300


def markdown(runs: Sequence[Run]) -> str:
    """Broken promises first, with their sentences; then a table of all runs, folded when it is long."""
    lines = [f"### {_SIGNS[_worst(runs)]} sfusion: {headline(runs)}", ""]
    for run in runs:
        if run.state == HELD:
            continue
        lines.append(f"**{_escape(run.name)}** (world {run.world}, seed {run.seed})")
        lines.append("")
        if run.error:
            lines.append(f"- {_SIGNS[BROKEN]} {_escape(_short(run.error))}")
        lines += [_bullet(one) for one in [*run.of(BROKEN), *run.of(UNKNOWN)]]
        if run.replay:
            lines.append(f"- replay: `{run.replay.replace('`', '')}`")
        lines.append("")
    long = len(runs) > 12
    if long:
        lines += ["<details><summary>All runs</summary>", ""]
    lines += ["| | scenario | promises held | calls | time | world |", "|---|---|---:|---:|---:|---|"]
    for run in runs:
        held = f"{len(run.of(HELD))}/{len(run.verdicts)}"
        cells = [_SIGNS[run.state], _escape(run.name), held, str(run.calls), span_text(run.seconds), run.world]
        lines.append(f"| {' | '.join(cells)} |")
    if long:
        lines += ["", "</details>"]
    return "\n".join(lines) + "\n"


def _worst(runs: Sequence[Run]) -> str:
    states = {run.state for run in runs}
    return next((state for state in (BROKEN, UNKNOWN) if state in states), HELD if runs else UNKNOWN)


def _bullet(one: Verdict) -> str:
    return f"- {_SIGNS[one.state]} `{one.promise.replace('`', '')}` {one.state}: {_escape(_short(one.sentence))}"


def _short(text: str) -> str:
    return text if len(text) <= SENTENCE_LENGTH else text[: SENTENCE_LENGTH - 1] + "…"


def _escape(text: str) -> str:
    """Text that stays text: no links, no mentions, no HTML, no new lines."""
    return _SPECIAL.sub(r"\\\1", escape(" ".join(writable(text).split()), quote=False))
