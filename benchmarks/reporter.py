"""The terminal report of the benchmarks: progress, ratios with their spread, goals, and how costs
grow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.figures import OURS, BenchResult, GrowthCurve, GrowthPoint, Spread
from sfusion.harness.terminal import ProgressReporter
from sfusion_tools.wording import counted

_HEAD = ("benchmark", "against", "goal", "sfusion", "baseline", "ratio", "range")


class BenchReporter(ProgressReporter):
    """Shows each benchmark as it ends; ``finish`` prints the table."""

    def round_ended(self, done: int, name: str) -> None:
        self.progress(done, name)

    def benchmark_ended(self, done: int, result: BenchResult) -> None:
        ratios = (
            ", ".join(
                f"{_ratio(goal.found.median)} of {goal.baseline}"
                for goal in result.judged
                if goal.baseline
            )
            or f"{figure(result.figures[OURS].median, result.unit)}"
        )
        self.progress(done, line=f"{result.name}: {ratios}")

    def finish(
        self,
        results: Sequence[BenchResult],
        machine: str,
        left_out: Mapping[str, str],
        *,
        judged: bool,
    ) -> None:
        self.print()
        rows = []
        styles = []
        for result in results:
            for row, met in _rows(result, judged):
                rows.append(row)
                styles.append("" if met is None else "green" if met else "bold red")
        self.table(rows, _HEAD, styles, texts=3)
        for name, why in left_out.items():
            self.print(f"not measured: {name}: {why}", "yellow")
        rounds = sorted({len(result.samples[OURS]) for result in results}, reverse=True)
        listed = " or ".join([*map(str, rounds[:-1]), counted(rounds[-1], "interleaved round")])
        self.print(f"medians of {listed}; {machine}", "dim")
        notes = dict.fromkeys(
            f"{name}: {why}" for result in results for name, why in result.missing.items()
        )
        for note in notes:
            self.print(f"not measured: {note}", "yellow")
        goals = [goal for result in results for goal in result.judged if goal.goal is not None]
        missed = sum(goal.met is False for goal in goals)
        if not judged:
            self.print("Too few rounds to judge the goals; run without --quick.")
        elif missed:
            self.print(f"{missed} of {counted(len(goals), 'goal')} missed.", "bold red")
        else:
            self.print(f"{counted(len(goals), 'goal')} met.", "green")


def _rows(result: BenchResult, judged: bool) -> list[tuple[tuple[str, ...], bool | None]]:
    figures = result.figures
    rows: list[tuple[tuple[str, ...], bool | None]] = []
    ours = figure(figures[OURS].median, result.unit)
    for goal in result.judged:
        wanted = "" if goal.goal is None else str(goal.goal)
        if wanted and judged:
            wanted += f": {goal.verdict}"
        if goal.baseline:
            theirs = figure(figures[goal.baseline].median, result.unit)
            cells = (
                result.name,
                goal.baseline,
                wanted,
                ours,
                theirs,
                _ratio(goal.found.median),
                _range(goal.found),
            )
        else:
            cells = (result.name, "–", wanted, ours, "", "", _figures(goal.found, result.unit))
        rows.append((cells, goal.met if judged else None))
    return rows


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def _range(found: Spread) -> str:
    return f"{_ratio(found.low)}–{_ratio(found.high)}"


def _figures(found: Spread, unit: str) -> str:
    return f"{figure(found.low, unit)}–{figure(found.high, unit)}"


def figure(value: float, unit: str) -> str:
    """A figure for people: ``1,234/s``, ``0.42 ms``."""
    if unit == "per second":
        return f"{value:,.0f}/s" if value >= 100 else f"{value:.3g}/s"
    if value >= 1:
        return f"{value:.3g} s"
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} µs"


class GrowthReporter(ProgressReporter):
    """Shows each point as it is measured; ``finish`` prints a row for each line of a curve."""

    def point_ended(self, done: int, name: str, point: GrowthPoint, unit: str) -> None:
        text = f"{name} {point.size:,}: " + (
            point.note if point.cost is None else f"{_cost(point.cost)} {unit}"
        )
        self.progress(done, text, line=text)

    def finish(self, curves: Sequence[GrowthCurve], machine: str) -> None:
        self.print()
        rows = [row for curve in curves for row in _curve_rows(curve)]
        self.table(rows, ("curve", "cost", "at", "is", "range", "exponent"), texts=2)
        self.print(
            f"exponent: the e of total cost = size ** e; 1 is linear, 2 is quadratic. {machine}",
            "dim",
        )
        for curve in curves:
            for point in curve.points:
                if point.cost is None:
                    self.print(
                        f"not measured: {curve.name} at {point.size:,}: {point.note}", "yellow"
                    )


def _curve_rows(curve: GrowthCurve) -> list[tuple[str, ...]]:
    """A row for each point; the exponent stands in the last."""
    rows: list[tuple[str, ...]] = []
    measured = [point for point in curve.points if point.cost is not None]
    for number, point in enumerate(measured, 1):
        assert point.cost is not None
        last = number == len(measured) and curve.per_unit and curve.exponent is not None
        exponent = f"{curve.exponent:.2f}" if last else ""
        spread = (
            f"{_number(point.cost.low)}–{_number(point.cost.high)}" if point.repetitions > 1 else ""
        )
        head = (curve.name, curve.unit) if number == 1 else ("", "")
        rows.append((*head, f"{point.size:,}", _cost(point.cost), spread, exponent))
    return rows


def _cost(found: Spread) -> str:
    return _number(found.median)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
