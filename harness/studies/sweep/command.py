"""``sfusion sweep``: try a grid of settings in world sim and recommend one.

Plays the scenario with every combination of the values, each with several seeds, and reports
throughput, the time of a call (p50, p95, p99), refused and wasted attempts and the time of the
whole batch. For a scenario with `training` it reports what is learned. The first varied value below
`tools` is the one to recommend; the others are conditions. The recommendation is the smallest value
within 2% of the best throughput (5% if the seeds overlap) that breaks no promise. `--vary
scenario=a.yaml,b.yaml` compares scenarios.

Exit code 0 if a value is recommended, 1 if none can be, 2 if the input is wrong, 3 if Ray is
missing.

Example: sfusion sweep throttled-gateway --vary tools.rate_limit=4..64 --html sweep.html
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO, TypeVar

from markupsafe import Markup

from sfusion_tools.wording import counted

from ...atomic_files import write_file
from ...commandline.declaring import command, option
from ...commandline.json_answer import text_stream, write_json
from ...commandline.options import WRITTEN
from ...errors import BadOption
from ...lab.runs.seeded import SeededOptions
from ...lab.runs.tasks import Task, admit_tasks
from ...learning import swept as learning
from ...learning.trained import Trained, check_played, play_training
from ...reports import Reports
from ...reports.html import render_page
from ...reports.line_chart import ChartLine, ChartPoint, LineChart, chart_style
from ...reports.run_report import duration
from ...terminal import ProgressReporter
from .grid import (
    SCENARIO,
    Grid,
    Measured,
    SeedSpread,
    Values,
    are_numbers,
    label,
    play_sample,
    read_axes,
)
from .measured import with_measured
from .reach import tells_about
from .recommendation import NOTICED
from .result import HEAD, SweepResult, shown

Run = TypeVar("Run")


_WORTH_SAYING = 20.0
"""Seconds from which on it is said how long a sweep takes (chosen: people begin to wonder)."""
_SHOWN = 5
"""Notes that are printed (chosen: what fits on a screen beside the table)."""


class SweepReporter(ProgressReporter):
    """Shows each setting as it ends; ``finish`` prints the table."""

    def __init__(
        self,
        out: TextIO,
        grid: Grid,
        clock: Callable[[], float] = time.monotonic,
        *,
        side_by_side: int = 1,
    ) -> None:
        super().__init__(out, grid.runs, "sweeping")
        self._grid = grid
        self._side_by_side = side_by_side
        self._clock = clock
        self._began = clock()

    def run_ended(self, done: int) -> None:
        """Move the bar, and say how long the rest takes: once the first runs have ended also on a
        line, for what is no terminal."""
        took = self._clock() - self._began
        left = took * (self._grid.runs - done) / done
        line = ""
        if done == self._side_by_side and left >= _WORTH_SAYING:
            line = f"{counted(self._grid.runs, 'run')}: about {duration(left)} left"
            if self._grid.seeds > 1:
                line += "; --seeds 1 is faster"
        self.progress(done, f"about {duration(left)} left", line=line)

    def setting_ended(
        self, number: int, values: Values, measured: Measured, *, is_known: bool = True
    ) -> None:
        """Show a figure, or that nothing ``is_known`` about such a setting."""
        count = len(self._grid.settings)
        named = ", ".join(
            f"{axis.path} {label(value)}"
            for axis, value in zip(self._grid.axes, values, strict=True)
        )
        text = f"{named}: beyond what the log tells"
        if is_known:
            text = f"{named}: {shown(measured.throughput, 'throughput')} calls/s"
        self.progress(
            number * self._grid.seeds, line=f"[{number:>{len(str(count))}}/{count}] {text}"
        )

    def finish(self, result: SweepResult) -> None:
        """Print the table and what to set."""
        grid = result.grid
        self.print()
        head = [*(axis.name for axis in grid.axes), *HEAD]
        rows = []
        styles = []
        for values, (first, *rest) in zip(grid.settings, result.narrow_rows(), strict=True):
            if not result.is_trusted(values):
                continue
            is_best = result.is_recommended(values)
            rows.append([f"{'->' if is_best else '  '} {first}", *rest])
            styles.append("bold green" if is_best else "")
        if rows:
            self.table(rows, head, styles, texts=0)
            self.print(f"medians over {counted(grid.seeds, 'seed')}; times in seconds", "dim")
        left_out = len(grid.settings) - len(rows)
        if left_out:
            self.print(
                f"{counted(left_out, 'setting')} left out: what the scenario was made from does "
                "not tell about them",
                "dim",
            )
        self.print()
        notes = self._notes(result)
        for note in notes[:_SHOWN]:
            self.print(note, "yellow")
        if len(notes) > _SHOWN:
            self.print(
                f"and {counted(len(notes) - _SHOWN, 'setting')} more with broken promises, "
                "failed calls or errors",
                "yellow",
            )
        if notes:
            self.print()
        for sentence in result.sentences():
            self.print(sentence)
        is_good = result.overall is not None or grid.compares
        self.print(result.headline, "bold green" if is_good else "bold red")

    def _notes(self, result: SweepResult) -> list[str]:
        """Say what went wrong with which settings: broken promises, lost calls, errors."""
        broken = []
        lost = []
        errors = []
        for values, measured in result.settings:
            name = self._named(values)
            if measured.broken:
                broken.append(f"broken at {name}: {', '.join(measured.broken)}")
            if measured.main_failure and measured.ok_share < 1 - NOTICED:
                lost.append(
                    f"{name}: {1 - measured.ok_share:.0%} of the calls do not end ok, "
                    f"mostly {measured.main_failure}"
                )
            if measured.errors:
                errors.append(f"{name}: {measured.errors[0]}")
        return [*broken, *lost, *errors]

    def _named(self, values: Values) -> str:
        return ", ".join(
            f"{axis.name} {label(value)}"
            for axis, value in zip(self._grid.axes, values, strict=True)
        )


def render_sweep(result: SweepResult) -> str:
    """Return the page. It loads nothing, and no script runs on it but its own."""
    grid = result.grid
    return render_page(
        "sweep.html.j2",
        headline=result.headline,
        scenario=result.scenario,
        about=result.about,
        facts=[
            ("settings", f"{len(grid.settings):,}"),
            ("seeds each", str(grid.seeds)),
            ("runs", f"{grid.runs:,}"),
            *((axis.path, axis.range) for axis in grid.axes),
        ],
        advice=result.advice(),
        charts=[Markup(chart.svg()) for chart in charts(result)],  # LineChart escapes every text
        chart_style=Markup(chart_style()),
        columns=[axis.path for axis in grid.axes] + list(HEAD),
        texts=len(grid.axes),
        rows=[
            (row, result.is_recommended(values), setting.broken, setting.errors)
            for row, (values, setting) in zip(result.rows(), result.settings, strict=True)
            if result.is_trusted(values)
        ],
        seeds=counted(grid.seeds, "seed"),
    )


def charts(result: SweepResult) -> list[LineChart]:
    """Throughput, durations, wasted attempts and the time of the batch, along the chosen axis."""
    several = len(result.curves) > 1

    def of(figure: str, name: str = "") -> list[ChartLine]:
        return [
            ChartLine(name or condition, _points(result, condition, figure))
            for condition in result.curves
        ]

    if several:
        durations = of("p95")
    else:
        durations = [line for name in ("p50", "p95", "p99") for line in of(name, name)]
    lost = (
        of("wasted") if several else [*of("wasted", "wasted"), *of("refused", "of these refused")]
    )
    return [
        _chart(result, "Throughput: calls that ended ok per second", of("throughput")),
        _chart(
            result,
            "p95 of a call in seconds" if several else "How long a call took, in seconds",
            durations,
        ),
        _chart(result, "Attempts that gave no result", lost),
        _chart(result, "Time of the whole batch in seconds", of("seconds")),
    ]


def _chart(result: SweepResult, title: str, lines: Sequence[ChartLine]) -> LineChart:
    axis = result.grid.chosen
    overall = result.overall
    labels = [label(value) for value in axis.values]
    numbers = [float(value) for value in axis.values] if are_numbers(axis.values) else None
    mark = None if overall is None else labels.index(label(overall[0]))
    return LineChart(title, axis.path, labels, lines, numbers=numbers, mark=mark)


def _points(result: SweepResult, condition: str, figure: str) -> list[ChartPoint]:
    points = []
    for values, measured in result.settings:
        if result.grid.condition(values) != condition:
            continue
        spread: SeedSpread = getattr(measured, figure)
        chosen = values[result.grid.axes.index(result.grid.chosen)]
        note = f"{label(chosen)}: {shown(spread, figure)}"
        is_known = not measured.errors and result.is_trusted(values)
        middle = spread.median if is_known else None
        points.append(ChartPoint(middle, spread.low, spread.high, note))
    return points


@dataclass(frozen=True)
class SweepOptions(SeededOptions):
    """The options of the command."""

    vary: Annotated[
        list[str] | None,
        option(
            "A value of the scenario and what to try: 4..64 (doubling, with the values halfway) or "
            "32,64,128. Repeat for a grid.",
            "PATH=VALUES",
        ),
    ] = None
    model: Annotated[
        Path | None,
        option(
            "Server model to use instead of the scenario's, as `sfusion doctor "
            "--model-out` writes it."
        ),
    ] = None
    out: Annotated[
        Path | None, option("Write sweep.html and sweep.json to this folder.", "DIR", WRITTEN)
    ] = None


@command
def sweep(options: SweepOptions) -> int:
    task = _task(options)
    grid = Grid(tuple(read_axes(options.vary or ())), options.seeds_of(task))
    varied = next((axis.values for axis in grid.axes if axis.path == SCENARIO), ())
    tasks = list(
        grid.tasks(task, {name: _task(replace(options, scenario=str(name))) for name in varied})
    )
    admit_tasks(tasks)
    Reports(out=options.out, html=options.html, json=options.json).check()

    kinds = {task.scenario.training is None for task in tasks}
    if len(kinds) > 1:
        raise BadOption(
            "--vary scenario: some have a section `training` and some do not; sweep them separately"
        )
    if task.scenario.training is not None:
        return _sweep_training(options, grid, task, tasks)
    measured: list[Measured] = []
    observed = [first.scenario.observed for first in tasks[:: grid.seeds]]
    with (
        options.workers(grid.runs) as workers,
        SweepReporter(
            text_stream(options.json), grid, side_by_side=options.side_by_side(grid.runs)
        ) as shown,
    ):
        played = _by_setting(grid, workers.map(play_sample, tasks), shown.run_ended)
        for values, samples in zip(grid.settings, played, strict=True):
            measured.append(Measured.of(samples))
            is_known = tells_about(observed[len(measured) - 1], grid.by_path(values))
            shown.setting_ended(len(measured), values, measured[-1], is_known=is_known)
        scenario = task.scenario
        result = SweepResult(
            scenario=scenario.title,
            about=scenario.about,
            seed=scenario.seed,
            grid=grid,
            measured=measured,
            observed=observed,
        )
        shown.finish(result)
    _write(options, lambda: render_sweep(result), result.as_dict())
    return 1 if result.overall is None and not grid.compares else 0


def _by_setting(
    grid: Grid, played: Iterator[Run], on_end: Callable[[int], None]
) -> Iterator[list[Run]]:
    """Yield the runs of one setting after the other; ``on_end`` is called with the number of those
    that ended."""
    done = 0
    try:
        for _ in grid.settings:
            runs = []
            for run in islice(played, grid.seeds):
                runs.append(run)
                done += 1
                on_end(done)
            yield runs
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"{done} of {counted(grid.runs, 'run')} ended; nothing was written"
        ) from None


def _sweep_training(options: SweepOptions, grid: Grid, task: Task, tasks: list[Task]) -> int:
    """Compare what is learned, instead of how fast calls are."""
    axes = [axis.path for axis in grid.axes]
    settings = [[*map(label, values)] for values in grid.settings]
    out = text_stream(options.json)
    trained = []
    with (
        options.workers(grid.runs) as workers,
        ProgressReporter(out, grid.runs, "trainings") as shown,
    ):
        played = _by_setting(grid, workers.map(play_training, tasks), shown.progress)
        for first, runs in zip(tasks[:: grid.seeds], played, strict=True):
            check_played(runs)
            assert first.scenario.training is not None
            trained.append(Trained(first.scenario.training, runs))
    found = list(zip(settings, trained, strict=True))
    learning.tell_sweep(found, axes, task.name, out)
    about = " ".join(task.scenario.about.split())
    _write(
        options,
        lambda: learning.render_sweep(found, axes, task.name, about),
        learning.sweep_data(found, axes, task.name),
    )
    return 0


def _write(options: SweepOptions, render: Callable[[], str], answer: dict[str, Any]) -> None:
    out = options.out
    for page in filter(None, (options.html, out and out / "sweep.html")):
        write_file(page, render())
    for file in filter(None, (options.json, out and out / "sweep.json")):
        write_json(file, answer)


def _task(options: SweepOptions) -> Task:
    """Return the one cell to sweep, with the given model."""
    task = options.cell()
    if options.model is None:
        return task
    return replace(task, scenario=with_measured(task.scenario, options.model))
