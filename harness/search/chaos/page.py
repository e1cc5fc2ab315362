"""The page of a chaos run: one row for each round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from os.path import relpath
from pathlib import Path
from urllib.parse import quote

from sfusion.harness.lab.journal import PAGE
from sfusion.harness.lab.runs import RunResult
from sfusion.harness.reports import html
from sfusion.harness.search.chaos.rounds import Round


def render_page(rounds: Sequence[Round], sentence: str, out: Path | None, page: Path) -> str:
    """Return the page; with ``out``, rounds link to the reports of their runs."""

    def link(result: RunResult) -> str:
        return "" if out is None else quote(Path(relpath(out / result.task.folder / PAGE, page.parent)).as_posix())

    rows = [
        (one, f"{one.moved} of {max(map(Counter.total, one.outcomes))}", link(one.real), link(one.sims[0]))
        for one in rounds
    ]
    return html.render_page("chaos.html.j2", headline=sentence, rounds=rows)
