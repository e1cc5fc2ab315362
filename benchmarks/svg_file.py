"""A chart as a file of its own, light or dark as its reader prefers."""

from __future__ import annotations

import re
from pathlib import Path

from sfusion.harness import reports
from sfusion.harness.reports.line_chart import LineChart, chart_style

_BASE = Path(reports.__file__).parent / "assets" / "base.css"


def svg_file(chart: LineChart) -> str:
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" class="lc" viewBox="-24 -24 528 338" '
        'width="528" height="338">'
        f"<style>{_palettes()}{chart_style()}</style>"
        f'<rect x="-24" y="-24" width="100%" height="100%" fill="var(--card)"/>'
        f'<svg width="480" height="290">{chart.svg()}</svg></svg>\n'
    )


def _palettes() -> str:
    """The colours of the pages, which an SVG file cannot switch by a button."""
    pages = _BASE.read_text(encoding="utf-8")
    light, dark = (
        re.search(rf"{re.escape(selector)} \{{(.*?)\}}", pages, re.DOTALL)
        for selector in (":root", ':root[data-theme="dark"]')
    )
    assert light is not None
    assert dark is not None
    return f":root {{{light[1]}}}\n@media (prefers-color-scheme: dark) {{ :root {{{dark[1]}}} }}\n"
