"""The HTML page of a chaos run: one row for each round."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from sfusion.harness.lab.journal import PAGE
from sfusion.harness.lab.runs import RunResult
from sfusion.harness.search.chaos.rounds import Round

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #8884; padding: .35rem .6rem; text-align: left; vertical-align: top; }
.held { color: #187a35; } .broken { color: #c0211f; font-weight: 600; } .unknown { color: #9a6700; }
"""
_HEAD = ("round", "events", "on Ray", "at the sandbox", "in sim", "sim and Ray differ", "calls that ended differently")


def render_page(rounds: Sequence[Round], sentence: str, out: Path | None, page: Path) -> str:
    """Return the page; with ``out``, rounds link to the reports of their runs."""
    rows = "".join(_row(one, out, page) for one in rounds)
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Chaos</title><style>{_STYLE}</style>'
        f"<h1>Chaos</h1><p>{escape(sentence)}</p><table><tr>{head}</tr>{rows}</table></html>\n"
    )


def _row(one: Round, out: Path | None, page: Path) -> str:
    real, sim = one.outcomes
    simulated = "broken" if one.sim_problems else "held"
    cells = [
        str(one.number),
        _lines(one.events),
        f'<span class="{one.state}">{_linked(one.real, one.state, out, page)}</span><br>{_lines(one.problems)}',
        f"peak {one.count.peak}, limit {one.scenario.stated_limit}",
        f'<span class="{simulated}">{_linked(one.sims[0], simulated, out, page)}</span><br>{_lines(one.sim_problems)}',
        _lines(one.disagreements) or "no",
        f"{one.moved} of {max(real.total(), sim.total())}",
    ]
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _linked(result: RunResult, text: str, out: Path | None, page: Path) -> str:
    if out is None:
        return text
    target = Path(relpath(out / result.task.folder / PAGE, page.parent)).as_posix()
    return f'<a href="{escape(quote(target))}">{text}</a>'


def _lines(texts: Sequence[str]) -> str:
    return "<br>".join(escape(text) for text in texts)
