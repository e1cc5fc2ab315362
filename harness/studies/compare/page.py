"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from sfusion.harness.reports.html import render_page
from sfusion.harness.studies.compare.comparison import RunComparison
from sfusion.harness.studies.compare.telling import sections
from sfusion_tools.wording import counted


def render_comparison(found: Sequence[RunComparison], before: str, after: str) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    worse, same = sum(one.worse for one in found), sum(one.same for one in found)
    ordered = sorted(found, key=lambda one: (not one.worse, one.same))
    return render_page(
        "compare.html.j2",
        headline=f"{counted(worse, 'run')} got worse" if worse else "No promise got worse",
        before=before,
        after=after,
        facts=[("runs", str(len(found))), ("the same", str(same)), ("changed", str(len(found) - same))],
        runs=[(one, sections(one)) for one in ordered],
    )
