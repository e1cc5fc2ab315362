"""Ratios, goals and exponents."""

from __future__ import annotations

import math
from io import StringIO

import pytest

from benchmarks.benchmark import Benchmark, Contest, in_turn
from benchmarks.charts import growth_charts
from benchmarks.figures import OURS, BenchResult, Goal, GrowthCurve, GrowthPoint, Spread
from benchmarks.ground import Ground
from benchmarks.growth import Growth, TooSmall, measure_growth
from benchmarks.reporter import BenchReporter, GrowthReporter, figure
from benchmarks.svg_file import svg_file

RESULT = BenchResult(
    "call",
    "calls",
    "per second",
    {OURS: [50.0, 80.0, 90.0], "floor": [100.0, 100.0, 300.0], "design": [10.0, 20.0, 10.0]},
    (Goal("floor", at_least=0.7), Goal("design", at_least=4), Goal("verl", at_least=8)),
    {"verl": "verl is not installed"},
)


def test_a_ratio_is_the_median_over_pairs_of_one_round() -> None:
    floor, design = RESULT.judged
    assert floor.found == Spread(0.5, pytest.approx(0.3), 0.8)
    assert (floor.met, floor.verdict) == (False, "missed by 0.2")
    assert design.found == Spread(5.0, 4.0, 9.0)
    assert (design.met, design.verdict) == (True, "met")
    assert RESULT.missed == [floor]


@pytest.mark.parametrize(
    ("goal", "found", "missed"),
    [
        (Goal("", at_least=0.7), 0.7, 0.0),
        (Goal("", at_least=0.7), 0.5, 0.2),
        (Goal("", at_most=1.25), 1.25, 0.0),
        (Goal("", at_most=1.25), 1.5, 0.25),
    ],
)
def test_a_goal_says_by_how_much_it_is_missed(goal: Goal, found: float, missed: float) -> None:
    assert goal.missed_by(found) == pytest.approx(missed)


def test_a_goal_without_baseline_is_about_the_figure_itself() -> None:
    (one,) = BenchResult(
        "matrix", "", "seconds", {OURS: [4.0, 5.0, 6.0]}, (Goal(at_most=4),)
    ).judged
    assert (one.baseline, one.found, one.verdict) == ("", Spread(5.0, 4.0, 6.0), "missed by 1")


def test_contestants_take_turns_and_a_warm_up_is_not_counted() -> None:
    order: list[str] = []

    def contestant(name: str) -> float:
        order.append(name)
        return float(len(order))

    class Opened:
        def __enter__(self) -> Contest:
            return in_turn({name: lambda name=name: contestant(name) for name in (OURS, "floor")})  # type: ignore[misc]

        def __exit__(self, *_: object) -> None: ...

    ended: list[int] = []
    with Ground() as ground:
        result = Benchmark("x", "", "per second", (), lambda _: Opened(), rounds=2).run(
            ground, 7, ended.append
        )
    assert order == ["floor", OURS, OURS, "floor", "floor", OURS]
    assert result.samples == {OURS: [3.0, 6.0], "floor": [4.0, 5.0]}
    assert ended == [1, 2]


def test_the_table_shows_ratios_with_range_and_goals() -> None:
    out = StringIO()
    with BenchReporter(out, 3, "measuring") as shown:
        shown.benchmark_ended(3, RESULT)
        shown.finish([RESULT], "2 CPUs", {"permits": "Ray is not installed"}, judged=True)
    assert out.getvalue().splitlines() == [
        "call: 0.50 of floor, 5.00 of design",
        "",
        "benchmark  against  goal                         sfusion  baseline  ratio      range",
        "call       floor    at least 0.7: missed by 0.2     80/s     100/s   0.50  0.30–0.80",
        "call       design   at least 4: met                 80/s      10/s   5.00  4.00–9.00",
        "not measured: permits: Ray is not installed",
        "medians of 3 interleaved rounds; 2 CPUs",
        "not measured: verl: verl is not installed",
        "1 of 2 goals missed.",
    ]


def test_figures_are_short() -> None:
    assert [figure(value, "seconds") for value in (3.456, 0.00421, 0.0000316)] == [
        "3.46 s",
        "4.21 ms",
        "31.6 µs",
    ]
    assert [figure(value, "per second") for value in (12345.6, 12.34)] == ["12,346/s", "12.3/s"]


def curve(costs: dict[int, float], *, per_unit: bool = True) -> GrowthCurve:
    points = [
        GrowthPoint(size, Spread(cost, cost * 0.9, cost * 1.1), 3) for size, cost in costs.items()
    ]
    return GrowthCurve("callers", "", "callers", "µs per call", points, per_unit=per_unit)


@pytest.mark.parametrize(
    ("costs", "exponent"),
    [
        ({10: 5.0, 100: 5.0, 1000: 5.0}, 1.0),
        ({10: 1.0, 100: 10.0, 1000: 100.0}, 2.0),
        ({n: math.log(n) for n in (10, 10**4)}, 1 + math.log10(4) / 3),
    ],
)
def test_the_exponent_is_that_of_the_total_cost(costs: dict[int, float], exponent: float) -> None:
    assert curve(costs).exponent == pytest.approx(exponent)


def test_one_point_has_no_exponent_and_a_level_has_its_own() -> None:
    assert curve({10: 5.0}).exponent is None
    assert curve({10: 1.0, 100: 10.0}, per_unit=False).exponent == pytest.approx(1.0)


def test_a_machine_that_is_too_small_for_a_point_says_so_and_measures_the_others() -> None:
    def measure(ground: Ground, size: int) -> dict[str, float]:
        if size > 10:
            raise TooSmall("no memory")
        return {"time": size * 2.0, "memory": 7.0}

    growth = Growth(
        "nodes", "nodes", "µs per call", [1, 10, 100], measure, ["memory"], repetitions=2
    )
    with Ground() as ground:
        time, memory = measure_growth(growth, ground, growth.sizes, 9)
    assert [point.as_dict() for point in time.points] == [
        {"size": 1, "cost": {"median": 2.0, "low": 2.0, "high": 2.0}, "repetitions": 2, "note": ""},
        {
            "size": 10,
            "cost": {"median": 20.0, "low": 20.0, "high": 20.0},
            "repetitions": 2,
            "note": "",
        },
        {"size": 100, "cost": None, "repetitions": 0, "note": "no memory"},
    ]
    assert (time.exponent, memory.unit, memory.exponent) == (pytest.approx(2.0), "MB", 0.0)
    out = StringIO()
    with GrowthReporter(out, 3, "measuring") as shown:
        shown.finish([time, memory], "2 CPUs")
    assert out.getvalue().splitlines()[1:] == [
        "curve          cost         at  is  range  exponent",
        "nodes, time    µs per call   1   2    2–2",
        "                            10  20  20–20      2.00",
        "nodes, memory  MB            1   7    7–7",
        "                            10   7    7–7",
        "exponent: the e of total cost = size ** e; 1 is linear, 2 is quadratic. 2 CPUs",
        "not measured: nodes, time at 100: no memory",
        "not measured: nodes, memory at 100: no memory",
    ]
    charts = growth_charts([time, memory])
    assert list(charts) == ["nodes", "nodes-memory"]
    drawn = svg_file(charts["nodes"])
    assert drawn.count("<circle") == 2
    assert "nodes, time: µs per call, exponent 2.00" in drawn
    assert "prefers-color-scheme: dark" in drawn
