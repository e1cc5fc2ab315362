"""A chart as a file of its own, light or dark as its reader prefers."""

from __future__ import annotations

import math
import re
from pathlib import Path

from sfusion.harness import reports
from sfusion.harness.reports.line_chart import LineChart, chart_style

_WIDTH = 528
_HEIGHT = 314
"""Of a chart with the room beside and below it."""
_IN_A_ROW = 2
"""Charts beside each other: three on a page of 900 pixels would have letters of 7."""
_BASE = Path(reports.__file__).parent / "assets" / "base.css"


def svg_file(*charts: LineChart) -> str:
    """Return charts in rows, from the left to the right."""
    width = _WIDTH * min(len(charts), _IN_A_ROW)
    height = 24 + _HEIGHT * math.ceil(len(charts) / _IN_A_ROW)
    parts = []
    for place, chart in enumerate(charts):
        row, column = divmod(place, _IN_A_ROW)
        at = f'x="{_WIDTH * column}"'
        if row:
            at += f' y="{_HEIGHT * row}"'
        parts.append(f'<svg {at} width="480" height="290">{chart.svg()}</svg>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="lc" '
        f'viewBox="-24 -24 {width} {height}" width="{width}" height="{height}">'
        f"<style>{_palettes()}{chart_style()}</style>"
        f'<rect x="-24" y="-24" width="100%" height="100%" fill="var(--card)"/>'
        f"{''.join(parts)}</svg>\n"
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
