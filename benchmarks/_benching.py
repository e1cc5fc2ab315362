"""What ``python -m benchmarks`` does, apart from its options."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO, TypeVar

from benchmarks.benchmark import Benchmark, machine
from benchmarks.catalogue import BENCHMARKS
from benchmarks.charts import growth_charts
from benchmarks.figures import BenchResult, GrowthCurve, GrowthPoint
from benchmarks.ground import Ground
from benchmarks.growth import GROWTHS, Growth, as_document, measure_growth
from benchmarks.reporter import BenchReporter, GrowthReporter
from benchmarks.svg_file import svg_file
from sfusion.harness.atomic_files import write_file
from sfusion.harness.commandline.json_answer import is_stdout, write_json
from sfusion.harness.errors import BadOption, MissingWorld
from sfusion.harness.reports.files import Reports
from sfusion_tools.errors import near

_QUICK = 0.05
"""The share of the usual work with --quick (chosen)."""
_QUICK_ROUNDS = 2
"""Rounds with --quick (chosen)."""

Named = TypeVar("Named", Benchmark, Growth)


def run_benchmarks(only: Sequence[str], *, rounds: int, quick: bool, json: Path | None) -> int:
    """Measure, print the table, write the JSON and return the exit code."""
    chosen = _chosen(BENCHMARKS, only)
    rounds = min(rounds, _QUICK_ROUNDS) if quick else rounds
    total = sum(benchmark.rounds_of(rounds) for benchmark in chosen)
    results: list[BenchResult] = []
    left_out: dict[str, str] = {}
    done = 0
    with (
        Ground(_QUICK if quick else 1.0) as ground,
        BenchReporter(_terminal(json), total, "measuring") as shown,
    ):
        on = machine()
        for benchmark in chosen:
            before = done

            def round_ended(number: int, before: int = before, name: str = benchmark.name) -> None:
                shown.round_ended(before + number, name)

            done += benchmark.rounds_of(rounds)
            try:
                results.append(benchmark.run(ground, rounds, round_ended))
            except MissingWorld as why:
                left_out[benchmark.name] = str(why)
                shown.progress(done, line=f"{benchmark.name}: not measured: {why}")
                continue
            shown.benchmark_ended(done, results[-1])
        if not results:
            raise MissingWorld("; ".join(f"{name}: {why}" for name, why in left_out.items()))
        shown.finish(results, on, left_out, judged=not quick)
    if json is not None:
        document = {
            "machine": on,
            "quick": quick,
            "benchmarks": [result.as_dict() for result in results],
        }
        write_json(json, {**document, "not_measured": left_out})
    return 1 if not quick and any(result.missed for result in results) else 0


def run_growth(
    only: Sequence[str],
    *,
    sizes: Sequence[str],
    repetitions: int,
    quick: bool,
    out: Path | None,
    json: Path | None,
) -> list[GrowthCurve]:
    """Measure, print the table, and write plots and JSON."""
    own = dict(_read_sizes(text) for text in sizes)
    chosen = _chosen(GROWTHS, [*only, *(name for name in own if only and name not in only)])
    points = {
        growth.name: own.get(growth.name) or (growth.sizes[:2] if quick else growth.sizes)
        for growth in chosen
    }
    Reports(out=out).check()
    curves: list[GrowthCurve] = []
    done = 0
    with (
        Ground(_QUICK if quick else 1.0) as ground,
        GrowthReporter(_terminal(json), sum(map(len, points.values())), "measuring") as shown,
    ):
        on = machine()

        for growth in chosen:
            sizes_of = points[growth.name]

            def point_ended(
                name: str,
                point: GrowthPoint,
                unit: str,
                before: int = done,
                sizes: Sequence[int] = sizes_of,
            ) -> None:
                shown.point_ended(before + sizes.index(point.size) + 1, name, point, unit)

            curves += measure_growth(
                growth=growth,
                ground=ground,
                sizes=sizes_of,
                repetitions=1 if quick else repetitions,
                point_ended=point_ended,
            )
            done += len(sizes_of)
        shown.finish(curves, on)
    if out is not None:
        for name, chart in growth_charts(curves).items():
            write_file(out / f"{name}.svg", svg_file(chart))
    if json is not None:
        write_json(json, as_document(curves, on))
    return curves


def _terminal(json: Path | None) -> TextIO:
    return sys.stderr if is_stdout(json) else sys.stdout


def _chosen(every: Sequence[Named], names: Sequence[str]) -> list[Named]:
    known = [benchmark.name for benchmark in every]
    for name in names:
        if name not in known:
            raise BadOption(f"--only {name}: no such benchmark; {near(name, known)}")
    return [benchmark for benchmark in every if not names or benchmark.name in names]


def _read_sizes(text: str) -> tuple[str, list[int]]:
    name, _, listed = text.partition("=")
    known = [growth.name for growth in GROWTHS]
    if name not in known:
        raise BadOption(f"--sizes {text}: no such curve; {near(name, known)}")
    try:
        found = sorted({int(number) for number in listed.replace("_", "").split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise BadOption(f"--sizes {text}: expected {name}=N,N,... with numbers of at least 1")
    return name, found
