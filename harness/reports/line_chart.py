"""Line charts as SVG, for a page in our look."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path

_ASSETS = Path(__file__).parent / "assets"
_WIDTH = 480.0
_HEIGHT = 290.0
"""Size of a chart in its own units (chosen: two stand side by side on a page)."""
_LEFT = 52.0
_RIGHT = 14.0
_TOP = 34.0
_BOTTOM = 44.0
"""Room around the plot for title, ticks and labels (chosen by eye)."""
_ROW = 17.0
"""Height of a row of the legend (chosen by eye)."""
_MOST_DOTS = 150
"""Points of a line that are drawn as dots, too (chosen: more would touch each other)."""
_LETTER = 7.6
"""Width of a letter, about (chosen: wide enough for the letters of most names)."""
_COLOURS = (
    "series",
    "throttled",
    "transport_timeout",
    "compile_error",
    "bad_response",
    "queue",
    "server",
    "text",
)


@dataclass(frozen=True, slots=True)
class ChartPoint:
    """A value with its spread; ``None`` where nothing was measured."""

    value: float | None
    low: float | None = None
    high: float | None = None
    note: str = ""
    """Shown when the pointer rests on it."""


@dataclass(frozen=True, slots=True)
class ChartLine:
    name: str
    points: Sequence[ChartPoint]
    """One for each place on the x axis."""


@dataclass(frozen=True, slots=True)
class LineChart:
    title: str
    x_name: str
    labels: Sequence[str]
    """The names of the places on the x axis."""
    lines: Sequence[ChartLine]
    numbers: Sequence[float] | None = None
    """The places as numbers, if they are; otherwise they are equally far apart."""
    mark: int | None = None
    """The place with a vertical line through it."""
    shaded: Sequence[tuple[int, int]] = ()
    """From which place to which something happened."""

    def svg(self) -> str:
        """Return the chart as an element for a page whose style contains ``chart_style``."""
        legend, rows = self._legend()
        plot = _Plot.of(self.lines, xs=self._places(), top=_TOP + _ROW * rows)
        parts = [
            f'<text class="lc-title" x="0" y="14">{escape(self.title)}</text>',
            legend,
            *(plot.shade(first, last) for first, last in self.shaded),
            *(plot.grid_line(tick) for tick in plot.ticks),
            *self._x_labels(plot.xs),
        ]
        if self.mark is not None:
            parts.append(plot.mark(self.mark))
        for number, line in enumerate(self.lines):
            colour = f"var(--{_COLOURS[number % len(_COLOURS)]})"
            parts += plot.drawn(line, colour)
        box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}"'
        return (
            f'<svg class="lc" {box} role="img" '
            f'aria-label="{escape(self.title)}">{"".join(parts)}</svg>'
        )

    def _legend(self) -> tuple[str, int]:
        """The names of the lines and the number of rows that they take; one line needs no name."""
        if len(self.lines) < 2:
            return "", 0
        parts = []
        x = 0.0
        row = 1
        for number, line in enumerate(self.lines):
            name = line.name if len(line.name) <= 60 else line.name[:57] + "..."
            width = 22 + _LETTER * len(name)
            if x and x + width > _WIDTH:
                x = 0.0
                row = row + 1
            at = 16 + 17 * row
            colour = _COLOURS[number % len(_COLOURS)]
            parts.append(
                f'<rect x="{x:.1f}" y="{at - 9}" width="10" height="10" rx="2" '
                f'fill="var(--{colour})"/>'
            )
            parts.append(f'<text x="{x + 14:.1f}" y="{at}">{escape(name)}</text>')
            x += width
        return "".join(parts), row

    def _places(self) -> list[float]:
        count = len(self.labels)
        width = _WIDTH - _LEFT - _RIGHT - 16
        numbers = self.numbers
        if count < 2:
            return [_LEFT + 8 + width * 0.5] * count
        if numbers is None or numbers[0] == numbers[-1]:
            numbers = range(count)
        elif numbers[0] > 0 and numbers[-1] / numbers[0] >= 4:
            numbers = [math.log(number) for number in numbers]
        shares = [(number - numbers[0]) / (numbers[-1] - numbers[0]) for number in numbers]
        return [_LEFT + 8 + width * share for share in shares]

    def _x_labels(self, xs: Sequence[float]) -> list[str]:
        """The names of the places, without those that have no room; the marked one always has."""
        parts = []
        free = -math.inf
        marked = -math.inf if self.mark is None else xs[self.mark]
        for place, (x, text) in enumerate(zip(xs, self.labels, strict=True)):
            text = text if len(text) <= 14 else text[:11] + "..."
            half = _LETTER * len(text) / 2
            before = place != self.mark and x < marked < x + 2 * half + 6
            if x - half > free and not before:
                centre = min(x, _WIDTH - half)
                style = ' class="lc-marked"' if place == self.mark else ""
                at = f'x="{centre:.1f}" y="{_HEIGHT - _BOTTOM + 16:g}" text-anchor="middle"'
                parts.append(f"<text{style} {at}>{escape(text)}</text>")
                free = x + half + 6
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        return [
            *parts,
            (
                f'<text x="{middle:g}" y="{_HEIGHT - 8:g}" '
                f'text-anchor="middle">{escape(self.x_name)}</text>'
            ),
        ]


@dataclass(frozen=True, slots=True)
class _Plot:
    """The area in which lines are drawn, with its two scales."""

    xs: Sequence[float]
    """Where the places of the x axis are."""
    top: float
    ticks: Sequence[float]

    @classmethod
    def of(cls, lines: Sequence[ChartLine], *, xs: Sequence[float], top: float) -> _Plot:
        """Return a plot that is high enough for every value and its spread."""
        values = []
        for line in lines:
            for point in line.points:
                if point.value is not None:
                    values.append(point.value if point.low is None else point.low)
                    values.append(point.value if point.high is None else point.high)
        ticks = nice_ticks(max(values, default=1.0), min(values, default=0.0))
        return cls(xs, top, ticks)

    def y(self, value: float) -> float:
        """Return where a value is drawn."""
        low = self.ticks[0]
        high = self.ticks[-1] or 1.0
        bottom = _HEIGHT - _BOTTOM
        return bottom - (bottom - self.top) * (value - low) / (high - low)

    def shade(self, first: int, last: int) -> str:
        left = self.xs[first] - 2
        width = self.xs[last] + 2 - left
        height = _HEIGHT - _BOTTOM - self.top
        box = f'x="{left:.1f}" width="{width:.1f}" y="{self.top:g}" height="{height:g}"'
        return f'<rect class="lc-shade" {box}/>'

    def grid_line(self, tick: float) -> str:
        at = self.y(tick)
        return (
            f'<line class="lc-grid" x1="{_LEFT:g}" x2="{_WIDTH - _RIGHT:g}" '
            f'y1="{at:.1f}" y2="{at:.1f}"/>'
            f'<text x="{_LEFT - 7:g}" y="{at + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        )

    def mark(self, place: int) -> str:
        at = self.xs[place]
        return (
            f'<line class="lc-mark" x1="{at:.1f}" x2="{at:.1f}" y1="{self.top:g}" '
            f'y2="{_HEIGHT - _BOTTOM:g}"/>'
        )

    def drawn(self, line: ChartLine, colour: str) -> Iterator[str]:
        """Yield a line with its spread behind it and its points on top."""
        points = [
            (x, point)
            for x, point in zip(self.xs, line.points, strict=False)
            if point.value is not None
        ]
        yield self._band(points, colour)
        corners = " ".join(f"{x:.1f},{self.y(point.value or 0.0):.1f}" for x, point in points)
        yield f'<polyline stroke="{colour}" points="{corners}"/>'
        if len(points) <= _MOST_DOTS:
            yield from (self._dot(x, point, colour) for x, point in points)

    def _band(self, points: Sequence[tuple[float, ChartPoint]], colour: str) -> str:
        """Return the area between the low and the high ends; empty if fewer than two have any."""
        lower = []
        upper = []
        for x, point in points:
            if point.high is not None:
                lower.append(f"{x:.1f},{self.y(point.low or 0.0):.1f}")
                upper.append(f"{x:.1f},{self.y(point.high):.1f}")
        if len(lower) < 2:
            return ""
        corners = " ".join([*lower, *reversed(upper)])
        return f'<polygon class="lc-band" fill="{colour}" points="{corners}"/>'

    def _dot(self, x: float, point: ChartPoint, colour: str) -> str:
        title = f"<title>{escape(point.note)}</title>" if point.note else ""
        at = self.y(point.value or 0.0)
        return f'<circle cx="{x:.1f}" cy="{at:.1f}" r="3" fill="{colour}">{title}</circle>'


@cache
def chart_style() -> str:
    return (_ASSETS / "line_chart.css").read_text(encoding="utf-8")


def nice_ticks(most: float, least: float = 0.0) -> list[float]:
    """Return round numbers from 0, or below if ``least`` is, to at least ``most``."""
    if least < 0 and math.isfinite(least):
        step = nice_ticks(max(most, 0.0) - least)[1]
        first = math.floor(least / step + 1e-9)
        last = math.ceil(max(most, 0.0) / step - 1e-9)
        return [step * number for number in range(first, last + 1)]
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(
        factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * (1 - 1e-9)
    )
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def _short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 10_000 else f"{value:.4g}"
